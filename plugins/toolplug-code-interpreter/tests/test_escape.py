"""What code tries that wants out of its container, or more than its share. Each attempt says what it reached."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.process,
    pytest.mark.needs("bwrap"),
    pytest.mark.requirement("I3-code-escape"),
]

HELD = "import json, os, signal, socket, subprocess, sys, time\n"
"""What every attempt begins with."""

FILES = f"""
hidden = ('/etc/passwd', '/etc/shadow', '/etc/hosts', '/root', '/home', '/var', '/run', '/sys', '/boot', '/srv',
          '/usr/local', '/usr/src', {str(Path.cwd())!r})
found = [path for path in hidden if os.path.lexists(path)]
with open('/proc/mounts') as file:
    mounts = [(line.split()[1], line.split()[3]) for line in file]
writable = [path for path, options in mounts if options.split(',')[0] == 'rw']
print(found, sorted(writable), sorted(os.listdir('/')), sorted(os.listdir('/mnt')), os.listdir('/proc/sys'))
"""

WRITES = """
found = []
for path in ('/x', '/dev/x', '/etc/x', '/usr/x', '/usr/bin/x', '/opt/x', '/opt/python/x', '/opt/worker/x',
             '/opt/worker/worker.py', '/opt/packages/0/x', '/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger',
             '/proc/1/oom_score_adj', '/proc/1/x', '/proc/sys/x'):
    try:
        os.close(os.open(path, os.O_WRONLY | (0 if os.path.exists(path) else os.O_CREAT)))
        found.append(path)
    except OSError:
        pass
print(found)
"""

NETWORK = """
found = []
for family in range(1, 46):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        try:
            socket.socket(family, kind).close()
            found.append(family)
        except OSError:
            pass
reached = []
for address in (('127.0.0.1', PORT), ('::1', PORT), ('1.1.1.1', 53), ('169.254.169.254', 80), ('10.0.0.1', 80)):
    try:
        socket.create_connection(address, 1).close()
        reached.append(address)
    except OSError:
        pass
with open('/proc/net/dev') as file:
    devices = [line.split(':')[0].strip() for line in file if ':' in line]
print(sorted(set(found) - {1, 2, 10}), reached, devices)
"""

SEEN = """
mine = {os.getpid(), os.getppid()}
others = [pid for pid in os.listdir('/proc') if pid.isdigit() and int(pid) not in mine]
killed = []
for pid in (1, HOST, -1):
    try:
        os.kill(pid, 0)
        killed.append(pid)
    except OSError:
        pass
secrets = []
for pid in (1, os.getpid()):
    for name in ('environ', 'cmdline'):
        try:
            text = open(f'/proc/{pid}/{name}').read()
            secrets += [text] if 'SECRET' in text or 'providers' in text else []
        except OSError:
            pass
leaks = [name for name in os.environ if name not in (
    'HOME', 'LANG', 'LC_CTYPE', 'LD_LIBRARY_PATH', 'LOGNAME', 'MPLBACKEND', 'MPLCONFIGDIR', 'OMP_NUM_THREADS',
    'OPENBLAS_NUM_THREADS', 'PATH', 'PWD', 'TMPDIR', 'USER', 'XDG_CACHE_HOME')]
print(others, [pid for pid in killed if pid == HOST], secrets, leaks, socket.gethostname(), os.getuid() == 0)
"""

KERNEL = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
done = []
def attempt(name, result):
    if result >= 0:
        done.append(name)
attempt('unshare user', libc.unshare(0x10000000))
attempt('unshare mount', libc.unshare(0x00020000))
attempt('mount', libc.mount(b'none', b'/mnt/data', b'tmpfs', 0, None))
attempt('umount', libc.umount2(b'/proc', 2))
attempt('chroot', libc.chroot(b'/mnt'))
attempt('ptrace', libc.ptrace(16, 1, 0, 0))
attempt('memfd_create', libc.memfd_create(b'x', 0))
attempt('shmget', libc.shmget(0, 1 << 20, 0o1600))
attempt('msgget', libc.msgget(0, 0o1600))
attempt('setuid', libc.setuid(0))
attempt('setns', libc.setns(os.open('/proc/1/ns/pid', os.O_RDONLY) if os.access('/proc/1/ns/pid', 4) else -1, 0))
attempt('clone3', libc.syscall(435, 0, 0))
attempt('keyctl', libc.syscall(250, 0, -3, 1))
attempt('bpf', libc.syscall(321, 0, 0, 0))
attempt('io_uring', libc.syscall(425, 1, 0))
attempt('perf', libc.syscall(298, 0, 0, -1, -1, 0))
attempt('mknod', libc.mknod(b'/mnt/data/disk', 0o60666, 0x800))
attempt('reboot', libc.reboot(0))
attempt('timer that resumes a stopped process', libc.timer_create(0, None, ctypes.create_string_buffer(8)))
attempt('file that resumes a stopped process', libc.fcntl(0, 10, signal.SIGCONT))
attempt('sethostname', libc.sethostname(b'x', 1))
attempt('priority', libc.setpriority(0, 0, -5))
for process in ('unshare -Ur true', 'su root -c true', 'mount -t tmpfs x /mnt/tmp', 'bwrap --ro-bind / / true'):
    if subprocess.run(process.split(), capture_output=True).returncode == 0:
        done.append(process)
with open('/proc/self/status') as file:
    status = dict(line.rstrip('\\n').split(':\\t', 1) for line in file)
print(done, [status[name] for name in ('CapPrm', 'CapEff', 'CapBnd', 'CapAmb')], status['NoNewPrivs'])
"""

ROUND_ABOUT = """
found = []
for path in ('/proc/1/root/etc/passwd', '/proc/self/root/etc/passwd', '/proc/1/cwd/etc/passwd',
             '/proc/self/fd/3/../../etc/passwd', '/mnt/../../etc/passwd', '/proc/kcore', '/dev/mem',
             '/dev/vda', '/dev/sda'):
    if os.path.exists(path) and os.access(path, os.R_OK):
        found.append(path)
for number in range(3, 256):
    try:
        where = os.readlink(f'/proc/self/fd/{number}')
    except OSError:
        continue
    if not where.startswith(('socket:', 'pipe:', '/proc/')):
        found.append(where)
for pid in (1,):
    try:
        open(f'/proc/{pid}/mem', 'r+b').close()
        found.append('mem')
    except OSError:
        pass
print(found)
"""


async def printed(small: Any, code: str) -> str:
    return await small.one.run(HELD + code)


async def test_it_finds_no_file_of_the_host_and_nothing_that_it_may_write(small: Any) -> None:
    devices = "'/dev/full', '/dev/null', '/dev/random', '/dev/urandom', '/dev/zero'"
    folders = "'bin', 'dev', 'etc', 'lib', 'lib64', 'mnt', 'opt', 'proc', 'tmp', 'usr'"
    assert await printed(small, FILES) == f"[] [{devices}, '/mnt', '/proc'] [{folders}] ['data', 'shm', 'tmp'] []"
    assert await printed(small, WRITES) == "[]"


async def test_it_reaches_no_network(small: Any) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await printed(small, NETWORK.replace("PORT", str(port))) == "[] [] ['lo']"


async def test_it_sees_no_process_environment_or_name_of_the_host(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "s3cret")
    assert await printed(small, SEEN.replace("HOST", str(os.getpid()))) == "[] [] [] [] sandbox False"


async def test_it_gets_no_right_from_the_kernel(small: Any) -> None:
    none = "0000000000000000"
    assert await printed(small, KERNEL) == f"[] ['{none}', '{none}', '{none}', '{none}'] 1"


async def test_it_comes_to_no_file_by_way_of_proc_and_devices(small: Any) -> None:
    assert await printed(small, ROUND_ABOUT) == "[]"


async def test_a_link_that_it_makes_leads_nowhere_for_the_host(small: Any) -> None:
    box = await small.one.container()
    await small.one.run("import os\nos.symlink('/etc/passwd', 'l')\nos.symlink('/', 'd')\nos.mkfifo('f')", box)
    assert await small.one.files(box) == {}
    for name in ("l", "d", "f"):
        answer = await small.one.http.post(f"/v1/containers/{box}/files", files={"file": (name, b"x")})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "file_not_found"), answer.text


async def test_a_file_that_becomes_a_link_is_not_read(small: Any) -> None:
    result = await small.one.call("open('a', 'w').write('x')\nimport os, threading, time")
    box, [file] = result.metadata["container_id"], result.structured["files"]
    await small.one.call("import os\nos.unlink('a')\nos.symlink('/proc/self/maps', 'a')", box)
    answer = await small.one.http.get(f"/v1/containers/{box}/files/{file['id']}/content")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "file_not_found")


PATHS = """
import glob, importlib.metadata
names = ('*.dist-info/direct_url.json', '*.pth', '__editable__*.py')
found = [path for name in names for path in glob.glob('/opt/packages/*/' + name)]
readable = []
for path in found:
    try:
        readable.append(open(path).read())
    except OSError:
        pass
said = {each.read_text('direct_url.json') for each in importlib.metadata.distributions()}
print(len(found) > 0, readable, said)
"""


async def test_packages_that_were_installed_from_a_folder_do_not_say_where_it_is(small: Any) -> None:
    assert await small.one.run(PATHS) == "True [] {None}"
