// Says its own monotonic time, in nanoseconds, before and after each wait of that many milliseconds.
// The waits take turns: a sleep, a park with a timeout, a wait on a monitor.
import java.util.concurrent.locks.LockSupport;

class Tick {
    public static void main(String[] arguments) throws Exception {
        long ms = Long.parseLong(arguments[0]);
        Object monitor = new Object();
        for (int turn = 0; ; turn++) {
            System.out.println(System.nanoTime());
            switch (turn % 3) {
                case 0 -> Thread.sleep(ms);
                case 1 -> {
                    long until = System.nanoTime() + ms * 1_000_000;
                    for (long left; (left = until - System.nanoTime()) > 0; ) LockSupport.parkNanos(left);
                }
                default -> { synchronized (monitor) { monitor.wait(ms); } }
            }
        }
    }
}
