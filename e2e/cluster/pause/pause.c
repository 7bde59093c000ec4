/* Holds a pod's namespaces open: sleeps, reaps orphans (it can be PID 1 of a shared namespace), leaves when told. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int signal_number) { (void)signal_number; _exit(0); }

static void reap(int signal_number) {
    (void)signal_number;
    while (waitpid(-1, 0, WNOHANG) > 0) {
    }
}

int main(void) {
    struct sigaction on_leave = {.sa_handler = leave};
    struct sigaction on_child = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
    sigaction(SIGTERM, &on_leave, 0);
    sigaction(SIGINT, &on_leave, 0);
    sigaction(SIGCHLD, &on_child, 0);
    for (;;) pause();
}
