"""A training step without its optimizer."""


class Step:
    """The forward and the backward of a model, which run apart. call: the model, compiled or not;
    graphs: whether it runs by PyTorch's CUDA graphs, which want to know where a step begins."""

    def __init__(self, model, args, kwargs, autocasts, call, graphs):
        self.model, self.args, self.kwargs = model, args, kwargs
        self.autocasts, self.call, self.graphs = autocasts, call, graphs
        self.device = next(model.parameters()).device.type
        self.loss = None

    def forward(self):
        import torch

        self.clear()
        if self.graphs:
            torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.autocasts):
            result = self.call(*self.args, **self.kwargs)
        self.loss = getattr(result, "loss", result)

    def backward(self):
        self.loss.backward()

    def whole(self):
        self.forward()
        self.backward()

    def clear(self):
        self.loss = None
        self.model.zero_grad(set_to_none=True)
