"""The processes of one training run, one a GPU: `torchrun --nproc-per-node N` starts them.

All of them take the same steps on weights that stay the same; each reads its share of the rows.
"""

import os

import attrs
import torch
from torch import Tensor, distributed, nn


@attrs.frozen
class Ranks:
    """This process among the others; alone where nothing has started several."""

    rank: int = 0
    count: int = 1

    @classmethod
    def join(cls) -> "Ranks":
        """As the environment says. Binds this process to its GPU, where there are any."""
        count = int(os.environ.get("WORLD_SIZE", "1"))
        if count == 1:
            return cls()
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            distributed.init_process_group("cpu:gloo,cuda:nccl")
        else:
            distributed.init_process_group("gloo")
        return cls(distributed.get_rank(), count)

    def agreed(self, *values: float) -> list[float]:
        """What the first process says: clocks differ, and all must do the same."""
        if self.count == 1:
            return list(values)
        said = torch.tensor(values, dtype=torch.float64)
        distributed.broadcast(said, src=0)
        return said.tolist()

    def summed(self, value: float) -> float:
        """Over all processes."""
        if self.count == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64)
        distributed.all_reduce(total)
        return total.item()

    @torch.no_grad()
    def add_gradients(self, net: nn.Module) -> None:
        """Every gradient becomes the sum over all processes; one transfer for all."""
        if self.count == 1:
            return
        grads: list[Tensor] = [p.grad for p in net.parameters() if p.grad is not None]
        flat = torch.cat([grad.flatten() for grad in grads])
        distributed.all_reduce(flat)
        parts = flat.split([grad.numel() for grad in grads])
        torch._foreach_copy_(grads, [p.view_as(g) for p, g in zip(parts, grads, strict=True)])

    def leave(self) -> None:
        """Once all are done."""
        if self.count > 1:
            distributed.barrier()
            distributed.destroy_process_group()
