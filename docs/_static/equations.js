// Typesets the equations of a page with the KaTeX files beside this one.
document.addEventListener("DOMContentLoaded", () => {
  for (const place of document.querySelectorAll(".math")) {
    const text = place.textContent.trim();
    const displayMode = text.startsWith("\\[");
    katex.render(text.slice(2, -2), place, { displayMode, throwOnError: false });
  }
});
