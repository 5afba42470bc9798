"""Many workers on torch.distributed for nlpkernel. `component` is light; the other modules need torch."""
