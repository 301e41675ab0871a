"""What the processes in `test_jobs` do; they import it by name."""

import os
import time

from neyman.errors import ArgumentError


def square(number, progress):
    progress(0.5)
    return number * number


def environment(name, progress):
    return os.environ.get(name)


def fail(kind, progress):
    raise {"ours": ArgumentError("a number is wrong"), "other": KeyError("name")}[kind]


def die(*_):
    os._exit(9)


def kill(signal, progress):
    os.kill(os.getpid(), signal)


def sleep(seconds, progress):
    progress(0.25)
    time.sleep(seconds)


def share(base, number, progress):
    return base + number
