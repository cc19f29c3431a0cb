"""Arithmetic on a text, without eval: numbers, brackets, + - * / // % **, and nothing else."""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import TypeAlias

Number: TypeAlias = int | float

CHARS_MAX = 200
"""Bounds how deep brackets go, and with `POWER_BITS_MAX` how long a number may become."""

POWER_BITS_MAX = 4000
"""A power of more bits is refused: 9 ** 9 ** 9 has 370 million digits."""


def calculate(expression: str) -> Number:
    """The value. Raises ValueError or ArithmeticError, whose words a model can work with."""
    if len(expression) > CHARS_MAX:
        raise ValueError(f"the expression has {len(expression)} characters; {CHARS_MAX} are read")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except SyntaxError as error:
        raise ValueError(f"this is no arithmetic: {error.msg}") from None
    return _value(tree.body)


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int):
        bits = base.bit_length() * abs(exponent)
        if bits > POWER_BITS_MAX:
            raise ValueError(f"the power has {bits} bits; {POWER_BITS_MAX} are computed")
    if base < 0 and exponent != int(exponent):
        raise ValueError("a broken power of a negative number is not a real one")
    power: Number = base**exponent
    return power


BINARY: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}

UNARY: Mapping[type[ast.unaryop], Callable[[Number], Number]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in UNARY:
            return UNARY[type(sign)](_value(operand))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in BINARY:
            return BINARY[type(sign)](_value(left), _value(right))
    raise ValueError(f"`{ast.unparse(node)}` is no arithmetic")
