"""The chunked head on Triton kernels: `kernel` and `ops` work on rows of logits, `products` on matrices, `chunks` says how
many rows at a time, `score` walks over them, `autograd` makes two differentiable functions of that, `head` the head."""
