"""The network fused for a GPU: the same function as network/nequip.py, a hundred kernels instead of thousands."""
