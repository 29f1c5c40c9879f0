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
    """Returns a class with the public methods of `client`, as coroutines or asynchronous iterators.

    Objects that a method returns are those of the synchronous client.
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
        "__doc__": f"The asynchronous twin of {client.__name__}: the same methods, for `await` or `async for`.",
    }
    for method_name, method in inspect.getmembers(client, inspect.isfunction):
        if not method_name.startswith("_"):
            members[method_name] = _twin(method_name, method)
    return type(name, (), members)


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
        return result

    return coroutine
