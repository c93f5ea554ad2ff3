# SPDX-License-Identifier: Apache-2.0
"""What the programs of this folder have in common: ranks that are processes and wait between runs, and a benchmark of
this library that is run in turn with them."""
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile


class Processes:
    """One per rank: serve(rank, ranks, meeting, connection, *arguments), where `meeting` is a file that a process group
    can begin with. It sends something when it is ready, answers every request, and ends when one is None."""

    def __init__(self, serve, ranks, *arguments):
        self.folder = tempfile.TemporaryDirectory(prefix="reshard_peers_")
        meeting = os.path.join(self.folder.name, "rendezvous")
        context = multiprocessing.get_context("spawn")
        self.connections, self.processes = [], []
        for rank in range(ranks):
            mine, theirs = context.Pipe()
            process = context.Process(target=serve, args=(rank, ranks, meeting, theirs, *arguments), daemon=True)
            process.start()
            theirs.close()
            self.connections.append(mine)
            self.processes.append(process)
        for connection in self.connections:
            connection.recv()

    def ask(self, request):
        """The answers of all ranks."""
        for connection in self.connections:
            connection.send(request)
        return [connection.recv() for connection in self.connections]

    def stop(self):
        for connection in self.connections:
            connection.send(None)
        for process in self.processes:
            process.join()
        self.folder.cleanup()


class Program:
    """A program of bench/, started with --serve: it answers a line with a line of JSON."""

    def __init__(self, path, *arguments):
        self.process = subprocess.Popen(
            [path, "--serve", *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.process.args[0]} stopped. Fix: build it with scripts/bench.")
        return json.loads(line)

    def run(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.answer()

    def stop(self):
        self.process.stdin.close()
        self.process.wait()
