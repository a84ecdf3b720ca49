"""API proxy: forwards a port on this machine's loopback to the API server in the cluster's namespace.

This port is the only connection to the cluster from outside its network. The proxy inherits a listening socket from
outside the namespace, and connects to the API server inside the namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys

from infra.local.settings import API_PORT, CONTROL_PLANE_ADDRESS

CHUNK_BYTES = 65536


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy all data from `reader` to `writer`. If a connection breaks, close the connection of `writer`."""
    try:
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.close()


async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Connect one client to the API server. If the server accepts no connection, close the client's connection."""
    try:
        inner_reader, inner_writer = await asyncio.open_connection(CONTROL_PLANE_ADDRESS, API_PORT)
    except OSError:
        writer.close()
        return
    try:
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))
    finally:
        for side in (inner_writer, writer):
            side.close()
            with contextlib.suppress(OSError):
                await side.wait_closed()


async def main(descriptor: int) -> None:
    """Serve the inherited listening socket until this process ends."""
    server = await asyncio.start_server(serve_one, sock=socket.socket(fileno=descriptor))
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
