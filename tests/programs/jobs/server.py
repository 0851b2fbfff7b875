"""An inference server whose threads all meet their first request at once: server.py OUT.json

Each thread has a compiled function of its own, so that all but one wait for torch's compile lock. Then each answers
requests for a while. Adds to the account: "threads": {name: {"tid", "function", "first_s": of its first request,
"answered"}}.
"""

import sys
import threading
import time

import account
import encoder
import torch

NAMES = ("worker-a", "worker-b", "worker-c")
SERVING_S = 2


def handler(name):
    model = encoder.Encoder(layers=3)
    body = model.forward

    def handle(tokens):
        return body(tokens).mean(1)

    handle.__code__ = handle.__code__.replace(co_name=name.replace("-", "_"))
    return torch.compile(handle, backend="aot_eager")


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    told, begin = {}, threading.Barrier(len(NAMES))
    account.wait_for_word()

    def serve(name):
        compiled = handler(name)
        begin.wait()
        with torch.no_grad():
            came = time.monotonic()
            compiled(encoder.tokens(2, 16))
            answered_first = time.monotonic()
            answered = 1
            while time.monotonic() < answered_first + SERVING_S:
                compiled(encoder.tokens(2, 16))
                answered += 1
                time.sleep(0.01)
        told[name] = {
            "tid": threading.get_native_id(),
            "function": name.replace("-", "_"),
            "first_s": answered_first - came,
            "answered": answered,
        }

    threads = [threading.Thread(target=serve, args=(name,), name=name) for name in NAMES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    account.write(sys.argv[1], threads=told)


main()
