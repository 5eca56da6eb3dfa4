"""The image that holds the namespaces of each pod: its one program does nothing but wait.

It is made here, byte by byte, so that neither a registry nor a compiler is needed.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# The kernel's sigaction: a handler, and nothing else.
_IGNORED: Final = struct.pack("<4Q", 1, 0, 0, 0)
_BASE: Final = 0x400000  # where the file is in memory
_HEADERS: Final = 0x78  # bytes


@dataclass(frozen=True, slots=True)
class Machine:
    """The name of a machine in images, its number in ELF, and its code, an instruction a line."""

    architecture: str
    number: int
    code: str

    def program(self) -> bytes:
        """Return an ELF file, which needs nothing beside it."""
        lines = [line.strip().partition("  ")[0] for line in self.code.strip().splitlines()]
        content = _IGNORED + bytes.fromhex("".join(lines))
        size, entry = _HEADERS + len(content), _BASE + _HEADERS + len(_IGNORED)
        ident = b"\x7fELF" + bytes((2, 1, 1)).ljust(12, b"\0")
        # An executable with one segment, described right behind this, and no sections.
        header = struct.pack(
            "<HHIQQQIHHHHHH", 2, self.number, 1, entry, 64, 0, 0, 64, 56, 1, 0, 0, 0
        )
        # The whole file, to be read and executed.
        segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x10000)
        return ident + header + segment + content


# rt_sigaction(SIGCHLD, ignored): nothing that loses its parent stays in a pod as a zombie. Then
# wait, again and again: the first process of a pod is killed, and hears no other signal.
MACHINES: Final[Mapping[str, Machine]] = {
    "x86_64": Machine(
        "amd64",
        62,
        """
        b8 0d 00 00 00     mov eax, 13 (rt_sigaction)
        bf 11 00 00 00     mov edi, 17 (SIGCHLD)
        be 78 00 40 00     mov esi, 0x400078 (_IGNORED)
        31 d2              xor edx, edx
        41 ba 08 00 00 00  mov r10d, 8
        0f 05              syscall
        b8 22 00 00 00     mov eax, 34 (pause)
        0f 05              syscall
        eb f7              jmp to mov eax, 34
        """,
    ),
    "aarch64": Machine(
        "arm64",
        183,
        """
        c8 10 80 d2        mov x8, 134 (rt_sigaction)
        20 02 80 d2        mov x0, 17 (SIGCHLD)
        c1 fe ff 10        adr x1, 0x400078 (_IGNORED)
        02 00 80 d2        mov x2, 0
        03 01 80 d2        mov x3, 8
        01 00 00 d4        svc 0
        28 09 80 d2        mov x8, 73 (ppoll)
        00 00 80 d2        mov x0, 0
        01 00 80 d2        mov x1, 0
        02 00 80 d2        mov x2, 0
        03 00 80 d2        mov x3, 0
        01 00 00 d4        svc 0
        fa ff ff 17        b to mov x8, 73
        """,
    ),
}
