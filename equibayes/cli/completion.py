"""`equibayes completion bash`: a script that lets the shell complete verbs, options, their values and settings."""

import argparse
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

HELP = "print a script for completion in bash or zsh"
DESCRIPTION = "Print a script that completes verbs, options, their values and settings when you press Tab."
EPILOG = """\
to use it in every shell:
  bash:  echo 'source <(equibayes completion bash)' >> ~/.bashrc
  zsh:   echo 'source <(equibayes completion zsh)'  >> ~/.zshrc
"""

SCRIPT = """\
# completion for equibayes; files where nothing else fits
_equibayes() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} verb=${{COMP_WORDS[1]}} options= settings=
    if [ "$COMP_CWORD" = 1 ]; then
        COMPREPLY=($(compgen -W "{verbs} --help --version" -- "$word"))
        return
    fi
    case "$verb $before" in
{values}
    esac
    case "$verb" in
{words}
    esac
    case "$word" in
        -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
        ?*) COMPREPLY=($(compgen -W "$settings" -- "$word")); [ -z "$COMPREPLY" ] || compopt -o nospace 2>/dev/null ;;
        *) COMPREPLY=() ;;
    esac
}}
complete -o default -F _equibayes equibayes
"""
ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=["bash", "zsh"], metavar="SHELL", help="bash or zsh")


def run(arguments: argparse.Namespace) -> int:
    from equibayes.cli.main import build_parser

    print((ZSH if arguments.shell == "zsh" else "") + script(build_parser()), end="")
    return 0


def script(parser: argparse.ArgumentParser) -> str:
    """The completion of a parser with verbs."""
    verbs = _verbs(parser)
    values, words = [], []
    for name, verb in verbs.items():
        own = [action for action in verb._actions if action.option_strings]
        for action in own:
            if action.choices:
                cases = "|".join(f'"{name} {option}"' for option in action.option_strings)
                values.append(_case(cases, f'COMPREPLY=($(compgen -W "{_joined(action.choices)}" -- "$word")); return'))
        options = [option for action in own for option in action.option_strings if option.startswith("--")]
        chosen = [choice for action in verb._actions if not action.option_strings for choice in action.choices or ()]
        found = [*chosen, *_settings_of(name)]
        words.append(_case(name, f'options="{_joined(options)}" settings="{_joined(found)}"'))
    return SCRIPT.format(verbs=_joined(verbs), values="\n".join(values), words="\n".join(words))


def _verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (action,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(action.choices)


def _settings_of(verb: str) -> list[str]:
    """`section.key=` of the verbs that take settings of the sampler."""
    if verb in ("sample", "compare"):
        from equibayes.run.settings import SampleConfig

        return [f"{name}=" for name in _paths(SampleConfig())]
    if verb == "learn":
        from equibayes.learning.settings import LearnConfig

        return [f"{name}=" for name in _paths(LearnConfig())]
    return []


def _paths(instance: Any, before: str = "") -> Iterator[str]:
    for f in fields(instance):
        value = getattr(instance, f.name)
        if is_dataclass(value):
            yield from _paths(value, f"{before}{f.name}.")
        else:
            yield before + f.name


def _case(pattern: str, body: str) -> str:
    return f"        {pattern}) {body} ;;"


def _joined(words: Any) -> str:
    return " ".join(map(str, words))
