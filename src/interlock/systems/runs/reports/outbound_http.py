"""HTTP requests to addresses that users have named.

A user must not reach internal services this way (SSRF). So a name is resolved once, addresses that are not
public are removed, and the connection is made to the checked address: a name that resolves differently the
second time (DNS rebinding) has no effect. Redirects are not followed, a response is read up to a limit, and
the whole request has a deadline.

Why: decision 0196.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import msgspec

from interlock.systems.runs.reports.report import DeliveryFailed
from interlock.systems.runs.webhook_security import IpAddress, is_public, networks

# Loaded with the first request: it takes as long as half of the package, and most processes send none.
if TYPE_CHECKING:
    import httpx2

MAX_ANSWER = 65_536
_PORTS = {"http": 80, "https": 443}

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]


class HttpAnswer(msgspec.Struct, frozen=True):
    """A response; of a long body only the beginning."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class OutboundHttp:
    """Sends requests. `allow` are networks in addition to the public ones; None allows any address."""

    def __init__(
        self, allow: Iterable[str] | None = (), *, timeout_s: float = 10.0, resolve: Resolve | None = None
    ) -> None:
        self._allow = None if allow is None else networks(allow)
        self._timeout_s = timeout_s
        self._resolve = resolve or _resolved
        self._client: httpx2.AsyncClient | None = None

    async def close(self) -> None:
        """Close all connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> HttpAnswer:
        """Return the response of any status; raise `DeliveryFailed` without one."""
        import httpx2  # noqa: PLC0415 - see above

        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._request(method, url, headers, body)
        except TimeoutError:
            raise DeliveryFailed(f"no answer within {self._timeout_s:g} s") from None
        except (httpx2.HTTPError, OSError, ValueError) as error:
            raise DeliveryFailed(f"{type(error).__name__}: {error}"[:300]) from None

    async def _request(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        import httpx2  # noqa: PLC0415 - see above

        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
            raise DeliveryFailed("the address is not http(s)://host/…")
        host, port = parts.hostname, parts.port or _PORTS[parts.scheme]
        addresses = self._permitted(host, await self._resolve(host, port))
        refused: OSError | httpx2.HTTPError | None = None
        for address in addresses:
            pinned = urlunsplit((parts.scheme, _netloc(address, port), parts.path or "/", parts.query, ""))
            try:
                return await self._sent(method, pinned, {**headers, "Host": parts.netloc}, body, host)
            except httpx2.ConnectError as error:
                refused = error
        raise refused or DeliveryFailed(f"{host} has no address")

    async def _sent(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, host: str
    ) -> HttpAnswer:
        import httpx2  # noqa: PLC0415 - see above

        if self._client is None:
            self._client = httpx2.AsyncClient(
                verify=_certificates(), trust_env=False, timeout=self._timeout_s, follow_redirects=False
            )
        request = self._client.build_request(
            method,
            url,
            headers={**headers, "Accept-Encoding": "identity"},
            content=body or None,
            extensions={"sni_hostname": host},
        )
        answer = await self._client.send(request, stream=True)
        try:
            return HttpAnswer(answer.status_code, dict(answer.headers), await _beginning(answer))
        finally:
            await answer.aclose()

    def _permitted(self, host: str, found: Sequence[str]) -> list[IpAddress]:
        addresses = [ipaddress.ip_address(text.partition("%")[0]) for text in dict.fromkeys(found)]
        if self._allow is None:
            return addresses
        good = [one for one in addresses if is_public(one) or any(one in net for net in self._allow)]
        if addresses and not good:
            raise DeliveryFailed(f"{host} is at an address that is not public and not allowed")
        return good


@cache
def _certificates() -> ssl.SSLContext:
    """Return the trusted certificates.

    Cached, because loading takes longer than a request.
    """
    import httpx2  # noqa: PLC0415 - see above

    return httpx2.create_ssl_context()


async def _resolved(host: str, port: int) -> Sequence[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise DeliveryFailed(f"the name {host} cannot be resolved: {error.strerror or error}") from None
    return [str(address[0]) for *_, address in found]


async def _beginning(answer: httpx2.Response) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in answer.aiter_raw():
        parts.append(part)
        size += len(part)
        if size >= MAX_ANSWER:
            break
    return b"".join(parts)[:MAX_ANSWER]


def _netloc(address: IpAddress, port: int) -> str:
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
