/* The program of test containers, static and without a shell.
 *   pause                 sleep until SIGTERM
 *   pause env             print the environment, then sleep
 *   pause for SECONDS     print the environment, end after SECONDS
 *   pause stubborn        print the environment, ignore SIGTERM
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void leave(int number) { (void)number; _exit(0); }
static void reap(int number) { (void)number; while (waitpid(-1, NULL, WNOHANG) > 0); }

int main(int count, char **words) {
  const char *mode = count > 1 ? words[1] : "";
  signal(SIGINT, leave);
  signal(SIGTERM, strcmp(mode, "stubborn") ? leave : SIG_IGN);
  signal(SIGCHLD, reap);
  if (*mode) {
    for (char **each = environ; *each; each++) puts(*each);
    fflush(stdout);
  }
  if (!strcmp(mode, "for") && count > 2) {
    usleep((useconds_t)(atof(words[2]) * 1e6));
    return 0;
  }
  for (;;) pause();
}
