# SPDX-License-Identifier: Apache-2.0
"""Asynchronous twins of the clients: the same methods, which run the synchronous ones in threads.

Nothing is implemented twice. Cancelling a task ends the requests and streams of its thread.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from trireme._kube import Cancellation, Cancelled, current_cancellation

_END = object()
PRIVATE = {"__init__", "__aenter__", "__aexit__", "__module__", "__doc__", "_repr_html_"}


async def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Runs a function in a thread. Cancellation ends its streams."""
    cancellation = Cancellation()
    token = current_cancellation.set(cancellation)
    try:
        # The thread has a copy of this context.
        thread = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    finally:
        current_cancellation.reset(token)
    return await _cancellable(thread, cancellation)


async def _cancellable(thread: asyncio.Future[Any], cancellation: Cancellation) -> Any:
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        cancellation.cancel()
        # No thread is left behind.
        await asyncio.wait([thread])
        if not thread.cancelled():
            thread.exception()
        raise
    except Cancelled:
        raise asyncio.CancelledError from None


async def iterate(function: Callable[..., Any], *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
    """Yields from an iterator whose steps run in threads."""
    cancellation = Cancellation()
    iterator: Iterator[Any] | None = None

    def step() -> Any:
        nonlocal iterator
        current_cancellation.set(cancellation)
        if iterator is None:
            iterator = iter(function(*args, **kwargs))
        return next(iterator, _END)

    try:
        while True:
            item = await _cancellable(asyncio.ensure_future(asyncio.to_thread(step)), cancellation)
            if item is _END:
                return
            yield item
    finally:
        cancellation.cancel()
        close = getattr(iterator, "close", None)
        if close:
            await asyncio.to_thread(close)


def asynchronous(client: type, name: str, module: str) -> Any:
    """Returns a class with the public members of `client`: methods are coroutines or asynchronous iterators.

    A method that returns an object of `client` returns the twin of it. Other objects are those of the
    synchronous client.
    """

    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        self._client = client(*args, **kwargs)

    async def enter(self: Any) -> Any:
        return self

    async def leave(self: Any, *_: object) -> None:
        await call(self._client.close)

    members: dict[str, Any] = {
        "__init__": initialize,
        "__aenter__": enter,
        "__aexit__": leave,
        "__module__": module,
        "synchronous": client,
        "__doc__": f"The asynchronous twin of {client.__name__}: the same methods, for `await` or `async for`.",
    }
    for method_name, method in inspect.getmembers(client, inspect.isfunction):
        if not method_name.startswith("_"):
            members[method_name] = _twin(method_name, method)
    for member_name, member in vars(client).items():
        if isinstance(member, classmethod):
            members[member_name] = _class_twin(getattr(client, member_name))
        elif isinstance(member, property) or member_name == "_repr_html_":
            members[member_name] = property(_reader(member_name), doc=member.__doc__)
    return type(name, (), {n: m for n, m in members.items() if not n.startswith("_") or n in PRIVATE})


def _reader(name: str) -> Callable[[Any], Any]:
    return lambda self: getattr(self._client, name)


def _class_twin(method: Callable[..., Any]) -> Any:
    @functools.wraps(method)
    async def coroutine(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return _twin_of(cls, await call(method, *args, **kwargs))

    return classmethod(coroutine)


def _twin_of(kind: Any, result: Any, parent: Any = None) -> Any:
    """Returns the twin, of class `kind`, of an object of the synchronous class. It returns others as they are."""
    if parent is not None and result is parent._client:
        return parent
    if type(result) is not kind.synchronous:
        return result
    twin = kind.__new__(kind)
    twin._client = result
    return twin


def _twin(name: str, method: Callable[..., Any]) -> Any:
    returns = str(inspect.signature(method).return_annotation)
    if returns.startswith("Iterator"):

        @functools.wraps(method)
        def iterator(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            return iterate(getattr(self._client, name), *args, **kwargs)

        return iterator

    @functools.wraps(method)
    async def coroutine(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = await call(getattr(self._client, name), *args, **kwargs)
        if inspect.isgenerator(result):
            return iterate(lambda: result)
        return _twin_of(type(self), result, self)

    return coroutine
