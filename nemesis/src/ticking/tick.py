# Says its own monotonic time, in nanoseconds, before and after each wait of that many milliseconds.
# The waits take turns: a sleep, a condition variable, a select with a timeout.
import select, sys, threading, time

length_s = int(sys.argv[1]) / 1000
condition = threading.Condition()


def on_condition():
    with condition:
        condition.wait(length_s)


waits = [lambda: time.sleep(length_s), on_condition, lambda: select.select([], [], [], length_s)]
turn = 0
while True:
    print(time.monotonic_ns(), flush=True)
    waits[turn % len(waits)]()
    turn += 1
