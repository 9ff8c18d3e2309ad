"""mgopt_solver: a hierarchy of models of increasing depth, nested iteration and MG/OPT."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from timeit import default_timer
from typing import Any

import torch
from torch import Tensor, nn
from weft.multilevel import MGOPT, Level

from ..utils import MPI, seed_from_rank
from . import criteria, transfers
from .line_searches import make_line_search
from .printing import root_print, unpack_arg
from .tensors import write_params_inplace
from .training import comm_of, make_optimizer, objective, test, train_epoch

Option = Any
"""The name of an option, a tuple (name, arguments), or a list with one of these per level, the finest first."""

CRITERIA = ("tb_mgopt_cross_ent", "tb_mgopt_cross_ent_plus_continuity", "tb_mgopt_regression")
INTERPOLATIONS = (
    "tb_get_injection_interp_params",
    "tb_get_linear_interp_params",
    "tb_parallel_get_injection_interp_params",
)
RESTRICTIONS = (
    "tb_get_injection_restrict_params",
    "tb_get_linear_restrict_params",
    "tb_parallel_get_injection_restrict_params",
)
PER_LEVEL = (
    "network",
    "interp_params",
    "optims",
    "criterions",
    "restrict_params",
    "restrict_grads",
    "restrict_states",
    "interp_states",
    "line_search",
)


class mgopt_solver:
    """Level 0 of ``levels`` is the finest. Functions are collective over the communicator of the models."""

    class level:
        """A model with the options of its level."""

        model: Any
        optimizer: torch.optim.Optimizer
        out_ls_step: list[float]

    def __init__(self, device: torch.device | None = None) -> None:
        self.levels: list[mgopt_solver.level] = []
        self.device = torch.device("cpu") if device is None else device

    # ---- nested iteration

    def initialize_with_nested_iteration(
        self,
        model_factory: Callable[..., nn.Module],
        ni_steps: Sequence[int],
        train_loader: Any,
        test_loader: Any,
        networks: list[Option],
        epochs: int = 1,
        log_interval: int = 1,
        mgopt_printlevel: int = 1,
        interp_params: Option = "tb_get_injection_interp_params",
        optims: Option = ("pytorch_sgd", {"lr": 0.01, "momentum": 0.9}),
        criterions: Option = "tb_mgopt_cross_ent",
        preserve_optim: bool = True,
        seed: int | None = None,
        zero_init_guess: bool = False,
    ) -> None:
        """Trains models of increasing depth. Each starts from the interpolated parameters of the one before.

        ``ni_steps`` are their depths, from coarse to fine. Options are ordered from fine to coarse.
        """
        count = len(ni_steps)
        if count != len(networks):
            raise ValueError(
                f"torchbraid (weft): expected one network per level, got {len(networks)} for {count} levels"
            )
        self.ni_steps = ni_steps
        self.ni_rfactor = _refinement_factor([int(steps) for steps in ni_steps])
        self.preserve_optim, self.zero_init_guess = bool(preserve_optim), bool(zero_init_guess)
        options = [self.levelize_argument(option, count)[::-1] for option in (interp_params, optims, criterions)]
        networks.reverse()
        if seed is not None:
            torch.manual_seed(seed_from_rank(seed, MPI.COMM_WORLD.Get_rank()))
        for number, steps in enumerate(ni_steps):
            new = self.level()
            new.network = networks[number]
            new.interp_params, new.optims, new.criterions = (option[number] for option in options)
            new.model = self._make_model(model_factory, number, new.network)
            new.out_ls_step = []
            if self.preserve_optim:
                new.optimizer = make_optimizer(new.optims, new.model)
            if self.levels or epochs == 0:
                # torchbraid allocates its vectors with a batch. The order of shuffled batches depends on this.
                next(iter(train_loader), None)
            if self.levels:
                interpolate, kwargs = self.process_get_interp_params(new.interp_params)
                write_params_inplace(new.model, interpolate(new.model, self.levels[-1].model, **kwargs))
            self._train(new, number, steps, train_loader, test_loader, epochs, log_interval, mgopt_printlevel)
            self.levels.append(new)
        self.levels.reverse()

    def _make_model(self, factory: Callable[..., nn.Module], number: int, network: Option) -> Any:
        name, kwargs = unpack_arg(network)
        if name != "Factory":
            raise ValueError(f"torchbraid (weft): expected the network 'Factory', got {name!r}")
        model = factory(number, **kwargs).to(self.device)
        if self.zero_init_guess:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.zero_()
        return model

    def _train(
        self,
        new: Any,
        number: int,
        steps: int,
        train_loader: Any,
        test_loader: Any,
        epochs: int,
        log_interval: int,
        printlevel: int,
    ) -> None:
        rank = comm_of(new.model).Get_rank()
        criterion, compose, kwargs = self.process_criterion(new.criterions, new.model)
        total, trainable = self.get_total_param_count(new.model)
        for line in (
            f"\nNested Iter Level:  {number}",
            f"  optimizing {steps} steps",
            f"  total params: {total:.0f}",
            f"  train params: {trainable:.0f}",
            "",
        ):
            root_print(rank, printlevel, 1, line)
        optimizer = new.optimizer if self.preserve_optim else new.optims
        seconds: tuple[list[float], list[float]] = ([], [])
        for epoch in range(1, epochs + 1):
            start = default_timer()
            train_epoch(
                rank,
                new.model,
                train_loader,
                optimizer,
                epoch,
                criterion,
                kwargs,
                compose,
                log_interval,
                self.device,
                printlevel,
            )
            middle = default_timer()
            test(rank, new.model, test_loader, criterion, kwargs, compose, self.device, printlevel, "\n  ")
            seconds[0].append(middle - start)
            seconds[1].append(default_timer() - middle)
        if epochs == 0:
            root_print(rank, printlevel, 1, "  Zero Nested Iteration Epochs -- Only Initializing Hierarchy ")
        else:
            _print_times(rank, printlevel, *seconds)

    # ---- MG/OPT

    def mgopt_solve(
        self,
        train_loader: Any,
        test_loader: Any,
        epochs: int = 1,
        log_interval: int = 1,
        mgopt_tol: float = 0,
        mgopt_iter: int = 1,
        nrelax_pre: int = 1,
        nrelax_post: int = 1,
        nrelax_coarse: int = 5,
        mgopt_printlevel: int = 1,
        mgopt_levels: int | None = None,
        preserve_optim: bool = True,
        restrict_params: Option = "tb_get_injection_restrict_params",
        restrict_grads: Option = "tb_get_injection_restrict_params",
        restrict_states: Option = "tb_injection_restrict_network_state",
        interp_states: Option = "tb_injection_interp_network_state",
        line_search: Option = ("tb_simple_ls", {"ls_params": {"alphas": [0.001, 0.01, 0.1, 0.5, 1.0]}}),
    ) -> list[float]:
        """Trains the hierarchy with ``mgopt_iter`` cycles per batch. Returns the loss of each batch.

        ``restrict_states`` and ``interp_states`` have no effect: every solve starts from its own initial guess.
        """
        count = len(self.levels) if mgopt_levels is None else mgopt_levels
        if not 1 <= count <= len(self.levels):
            raise ValueError(f"torchbraid (weft): expected mgopt_levels from 1 to {len(self.levels)}, got {count}")
        self.nrelax_pre, self.nrelax_post, self.nrelax_coarse = nrelax_pre, nrelax_post, nrelax_coarse
        self.preserve_optim = bool(preserve_optim)
        given = {
            "restrict_params": restrict_params,
            "restrict_grads": restrict_grads,
            "restrict_states": restrict_states,
            "interp_states": interp_states,
            "line_search": line_search,
        }
        for name, option in given.items():
            for each, value in zip(self.levels[:count], self.levelize_argument(option, count), strict=False):
                setattr(each, name, value)
        model = self.levels[0].model
        rank = comm_of(model).Get_rank()
        solver = MGOPT(
            model.parallel_nn.group,
            [self._level(number, number + 1 == count) for number in range(count)],
            pre=nrelax_pre,
            post=nrelax_post,
            coarse=nrelax_coarse,
            report=lambda text: root_print(rank, mgopt_printlevel, 2, text),
        )
        losses: list[float] = []
        seconds: tuple[list[float], list[float]] = ([], [])
        for epoch in range(1, epochs + 1):
            start = default_timer()
            losses += self._epoch(solver, train_loader, mgopt_iter, rank, epoch, log_interval, mgopt_printlevel)
            middle = default_timer()
            self._test_levels(rank, test_loader, mgopt_printlevel)
            seconds[0].append(middle - start)
            seconds[1].append(default_timer() - middle)
            _print_times(rank, mgopt_printlevel, *seconds)
            if losses[-1] < mgopt_tol:
                break
        return losses

    def _epoch(
        self, solver: MGOPT, loader: Any, cycles: int, rank: int, epoch: int, log_interval: int, printlevel: int
    ) -> list[float]:
        losses: list[float] = []
        start = default_timer()
        for number, (data, target) in enumerate(loader):
            batch = (data.to(self.device), target.to(self.device))
            root_print(rank, printlevel, 2, f"\nBatch:  {number}")
            loss = 0.0
            for cycle in range(cycles):
                root_print(rank, printlevel, 2, f"MG/Opt Iter:  {cycle}")
                loss = solver.cycle(batch)
            losses.append(loss)
            if number % log_interval == 0 or number + 1 == len(loader):
                done, seconds = number + 1, default_timer() - start
                root_print(
                    rank,
                    printlevel,
                    1,
                    f"  Train Epoch: {epoch} [{done * len(data)}/{len(loader.dataset)} "
                    f"({100.0 * done / len(loader):.0f}%)]     \tLoss: {loss:.9f}\tTime Per Batch {seconds / done:.6f}",
                )
        return losses

    def _test_levels(self, rank: int, test_loader: Any, printlevel: int) -> None:
        for number, each in enumerate(self.levels if printlevel >= 2 else self.levels[:1]):
            if number > 0:
                root_print(rank, printlevel, 2, f"  Test accuracy information for level {number}")
            criterion, compose, kwargs = self.process_criterion(self.levels[0].criterions, each.model)
            indent = "    " if number else "\n  "
            test(rank, each.model, test_loader, criterion, kwargs, compose, self.device, printlevel, indent)

    def _level(self, number: int, coarsest: bool) -> Level:
        here = self.levels[number]
        model = here.model
        criterion, compose, kwargs = self.process_criterion(here.criterions, model)
        if not hasattr(here, "optimizer") and self.preserve_optim:
            here.optimizer = make_optimizer(here.optims, model)

        def evaluate(batch: tuple[Tensor, Tensor], gradients: bool, term: Tensor | None) -> Tensor:
            model.train(gradients)
            return objective(model, *batch, criterion, kwargs, compose, term)

        def optimizer() -> torch.optim.Optimizer:
            return here.optimizer if self.preserve_optim else make_optimizer(here.optims, model)

        level = Level(lambda: list(model.parameters()), evaluate, optimizer, steps=here.out_ls_step)
        if not coarsest:
            coarse = self.levels[number + 1].model
            restrict, restrict_kwargs = self.process_get_restrict_params(here.restrict_params)
            restrict_gradient, gradient_kwargs = self.process_get_restrict_grad(here.restrict_grads)
            interpolate, interpolate_kwargs = self.process_get_interp_params(here.interp_params)
            level.restrict_parameters = lambda: restrict(model, coarse, **restrict_kwargs)
            level.restrict_gradients = lambda: restrict_gradient(model, coarse, **gradient_kwargs)
            level.interpolate = lambda: interpolate(model, coarse, **interpolate_kwargs)
            level.line_search = make_line_search(*unpack_arg(here.line_search))
        return level

    # ---- options

    def levelize_argument(self, to_levelize: Option, max_levels: int) -> list[Option]:
        """Returns a list with one option per level. The last option of a shorter list is repeated."""
        given = list(to_levelize) if isinstance(to_levelize, list) else [to_levelize]
        given = [(name, dict(arguments)) for name, arguments in map(unpack_arg, given)]
        return given + [(given[-1][0], dict(given[-1][1])) for _ in range(max_levels - len(given))]

    def process_criterion(self, option: Option, model: Any) -> tuple[Any, Any, dict[str, Any]]:
        method, kwargs = _known(option, CRITERIA, "criterion")
        return getattr(criteria, method), model.compose, {**kwargs, "model": model}

    def process_optimizer(self, option: Option, model: nn.Module) -> tuple[torch.optim.Optimizer, dict[str, Any]]:
        return make_optimizer(option, model), unpack_arg(option)[1]

    def process_line_search(self, option: Option) -> tuple[Any, dict[str, Any]]:
        method, kwargs = unpack_arg(option)
        return make_line_search(method, kwargs), kwargs

    def process_get_restrict_params(self, option: Option) -> tuple[Any, dict[str, Any]]:
        return self._transfer(option, RESTRICTIONS, "restriction", False)

    def process_get_restrict_grad(self, option: Option) -> tuple[Any, dict[str, Any]]:
        return self._transfer(option, RESTRICTIONS, "restriction", True)

    def process_get_interp_params(self, option: Option) -> tuple[Any, dict[str, Any]]:
        return self._transfer(option, INTERPOLATIONS, "interpolation", False)

    def process_restrict_states(self, option: Option) -> tuple[Any, dict[str, Any]]:
        method, kwargs = _known(option, ("tb_injection_restrict_network_state",), "restriction of states")
        return getattr(transfers, method), {**kwargs, "cf": self.ni_rfactor}

    def process_interp_states(self, option: Option) -> tuple[Any, dict[str, Any]]:
        method, kwargs = _known(option, ("tb_injection_interp_network_state",), "interpolation of states")
        return getattr(transfers, method), {**kwargs, "cf": self.ni_rfactor}

    def _transfer(self, option: Option, names: Sequence[str], what: str, grad: bool) -> tuple[Any, dict[str, Any]]:
        method, kwargs = _known(option, names, what)
        return getattr(transfers, method), {**kwargs, "cf": self.ni_rfactor, "deep_copy": True, "grad": grad}

    # ---- reports

    def get_total_param_count(self, model: Any) -> list[float]:
        """Collective. Returns the numbers of all and of the trainable parameters of all ranks."""
        parameters = list(model.parameters())
        mine = [float(sum(p.numel() for p in parameters)), float(sum(p.numel() for p in parameters if p.requires_grad))]
        return [sum(part) for part in zip(*comm_of(model).allgather(mine), strict=True)]

    def operator_complexity(self) -> tuple[float, float, list[float], list[float]]:
        """Collective. Returns the numbers of parameters of all levels divided by those of the finest level, for all and
        for trainable parameters, and the numbers per level."""
        total, trainable = zip(*(self.get_total_param_count(each.model) for each in self.levels), strict=True)
        return sum(total) / total[0], sum(trainable) / trainable[0], list(total), list(trainable)

    def __repr__(self) -> str:
        """Collective. Returns the sizes of the levels on rank 0, and an empty text on other ranks."""
        total_ratio, trainable_ratio, total, trainable = self.operator_complexity()
        if comm_of(self.levels[0].model).Get_rank() != 0:
            return ""
        lines = [
            "\nMG/Opt Solver",
            f"Device: {self.device}",
            f"Number of Levels:     {len(self.levels)}",
            f"Total Op Complexity: {total_ratio:6.3f}",
            f"Trainable Op Complexity: {trainable_ratio:6.3f}",
            "  level      total params       trainable params ",
        ]
        for number, (all_of_them, trained) in enumerate(zip(total, trainable, strict=True)):
            lines.append(
                f"   {number:2d}   {all_of_them:9.0f} [{100 * all_of_them / sum(total):5.2f}%]   "
                f"{trained:9.0f} [{100 * trained / sum(trainable):5.2f}%] "
            )
        return "\n".join(lines) + "\n"

    def options_used(self) -> None:
        """Prints the options of all levels on rank 0."""
        names = ("nrelax_pre", "nrelax_post", "nrelax_coarse", "preserve_optim", "zero_init_guess")
        lines = ["MG/Opt global parameters"]
        lines += [f"  {name}: {getattr(self, name)}" for name in names if hasattr(self, name)]
        for number, each in enumerate(self.levels):
            lines.append(f"\nMG/Opt parameters from level {number}")
            for name in PER_LEVEL:
                if hasattr(each, name):
                    method, kwargs = unpack_arg(getattr(each, name))
                    lines.append(f"  {name}: {method}")
                    lines += [f"    {key} : {value}" for key, value in kwargs.items()] or ["    Parameters: None"]
        root_print(comm_of(self.levels[0].model).Get_rank(), 1, 1, "\n".join(lines))


def _known(option: Option, names: Sequence[str], what: str) -> tuple[str, dict[str, Any]]:
    method, kwargs = unpack_arg(option)
    if method not in names:
        raise ValueError(f"torchbraid (weft): expected the {what} to be one of {list(names)}, got {method!r}")
    return method, kwargs


def _refinement_factor(steps: Sequence[int]) -> int:
    factors = {fine / coarse for coarse, fine in itertools.pairwise(steps)}
    if len(factors) > 1 or any(factor != int(factor) or factor < 2 for factor in factors):
        raise ValueError(f"torchbraid (weft): expected depths with a constant integer ratio, got {list(steps)}")
    return int(factors.pop()) if factors else -1


def _print_times(rank: int, printlevel: int, epochs: list[float], tests: list[float]) -> None:
    for name, seconds in (("epoch", epochs), ("test", tests)):
        spread = f"(1 std dev {statistics.stdev(seconds):.2e})" if len(seconds) > 1 else ""
        root_print(rank, printlevel, 1, f"  Time per {name}: {statistics.mean(seconds):.2e} {spread}")
