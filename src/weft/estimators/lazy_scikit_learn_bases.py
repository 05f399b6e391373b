"""scikit-learn's base classes, which estimators take when the first of them is made.

scikit-learn's ``BaseEstimator`` brings statistics, optimisers and tables along: more than a second
for those who only name an estimator, as every script does that trains one only at times. So the
classes are declared below `BasesToCome`, and the first instance, also an unpickled one, puts
scikit-learn's own classes in its place. Nothing is written anew: whatever scikit-learn asks of its
estimators, its own code answers, and every estimator that there is, is an instance of its classes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import wraps
from threading import Lock
from types import MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator as BasesToCome
else:

    class BasesToCome:
        """Stands where ``BaseEstimator`` will be."""


__all__ = ["MIXIN", "BasesToCome", "offered_if", "take_bases", "take_bases_if_loaded"]

#: The attribute in which a class names the mixin of scikit-learn that it takes besides.
MIXIN = "_scikit_learn_mixin"

#: Classes that have scikit-learn's bases already.
_complete: set[type] = set()
_taking = Lock()


def take_bases(root: type) -> None:
    """Put scikit-learn's classes below ``root``, which derives from `BasesToCome`, and its heirs.

    Classes that derive from these later find everything in its place.
    """
    if root in _complete:
        return
    from sklearn import base

    with _taking:
        if root in _complete:
            return
        root.__bases__ = (base.BaseEstimator,)
        for heir in _and_heirs(root):
            mixin = vars(heir).get(MIXIN)
            if mixin is not None:
                heir.__bases__ = (getattr(base, mixin), *heir.__bases__)
            # What scikit-learn does where a class derives from its own: set_fit_request and such.
            base.BaseEstimator.__init_subclass__.__func__(heir)
        _complete.add(root)


def take_bases_if_loaded(root: type) -> None:
    """The same where scikit-learn is there already: then to wait for an instance spares nothing."""
    if "sklearn.base" in sys.modules:
        take_bases(root)


def _and_heirs(kind: type) -> Iterator[type]:
    yield kind
    heirs: list[type] = kind.__subclasses__()
    for heir in heirs:
        yield from _and_heirs(heir)


class _OfferedMethod:
    """A method that instances have or do not have."""

    def __init__(self, method: Callable[..., Any], condition: Callable[[Any], bool]) -> None:
        self._method, self._condition = method, condition
        self.__doc__ = method.__doc__

    def _insist(self, instance: Any) -> None:
        if not self._condition(instance):
            raise AttributeError(
                f"{type(instance).__name__} has no {self._method.__name__} with these parameters"
            )

    def __get__(self, instance: Any, owner: type | None = None) -> Callable[..., Any]:
        if instance is not None:
            self._insist(instance)
            return MethodType(self._method, instance)

        # Of the class it is a plain function: so scikit-learn reads its parameters.
        @wraps(self._method)
        def of_any(instance: Any, *args: Any, **named: Any) -> Any:
            self._insist(instance)
            return self._method(instance, *args, **named)

        return of_any


def offered_if(
    condition: Callable[[Any], bool],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A method that only instances with the condition have, as scikit-learn's ``available_if``."""

    def offered(method: Callable[..., Any]) -> Any:
        return _OfferedMethod(method, condition)

    return offered
