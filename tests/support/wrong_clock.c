/* Python's wall clock is off by as many seconds as the file says that WRONG_CLOCK names; that of libraries is right. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int asked_by_python(void *caller) {
    Dl_info about;
    if (!dladdr(caller, &about) || !about.dli_fname)
        return 0;
    const char *name = strrchr(about.dli_fname, '/');
    name = name ? name + 1 : about.dli_fname;
    return !strncmp(name, "python", 6) || !strncmp(name, "libpython", 9);
}

int clock_gettime(clockid_t which, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, which, now);
    const char *path = getenv("WRONG_CLOCK");
    if (!failed && which == CLOCK_REALTIME && path && asked_by_python(__builtin_return_address(0))) {
        long off_s = 0;
        FILE *file = fopen(path, "r");
        if (file) {
            if (fscanf(file, "%ld", &off_s) == 1)
                now->tv_sec += off_s;
            fclose(file);
        }
    }
    return failed;
}
