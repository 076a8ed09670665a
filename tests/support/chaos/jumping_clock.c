/* Preloaded into one worker: its wall clock is off by what a mapped file says, from one moment to the next.
   The monotonic clock, by which everything waits, is left alone, as it is when somebody sets a machine's clock. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t none = 0;
static volatile int64_t *off_seconds = &none;

__attribute__((constructor)) static void map_file(void) {
    const char *path = getenv("CALVE_CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) off_seconds = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *off_seconds;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *told) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (told) *told = exact.tv_sec;
    return exact.tv_sec;
}
