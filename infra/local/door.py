"""The only way in: a port on this machine's loopback whose connections go on to the API server in its namespace.

The listening socket was opened outside and is inherited; connections to the API server are made inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys

from infra.local.settings import API_PORT, CONTROL_PLANE_ADDRESS

CHUNK_BYTES = 65536


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction until its end; a broken connection ends both directions."""
    try:
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.close()


async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Join one caller with the API server; while that restarts, the caller sees a closed connection and tries again."""
    try:
        inner_reader, inner_writer = await asyncio.open_connection(CONTROL_PLANE_ADDRESS, API_PORT)
    except OSError:
        writer.close()
        return
    try:
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))
    finally:
        for each in (inner_writer, writer):
            each.close()
            with contextlib.suppress(OSError):
                await each.wait_closed()


async def main(descriptor: int) -> None:
    """Serve the inherited listening socket for ever."""
    server = await asyncio.start_server(serve_one, sock=socket.socket(fileno=descriptor))
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
