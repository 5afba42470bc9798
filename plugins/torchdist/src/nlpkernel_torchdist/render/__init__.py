"""`nlpkernel render`: the script or manifest that an operator would write for a plan. Light."""
