/* Shifts the wall clock of one process by a number of milliseconds that can change at any time.
 *
 * Loaded with LD_PRELOAD. CLOCK_SHIFT_FILE names a file of eight bytes, the shift as a signed integer of
 * this machine; it is mapped, so a change counts from the next look at the clock. The monotonic clock is
 * left alone, as it is when an operator or NTP sets the time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Null until the constructor has run: other constructors ask for the time before. */
static volatile const int64_t *shift_ms;

__attribute__((constructor)) static void map_shift(void) {
    const char *path = getenv("CLOCK_SHIFT_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    /* A clock that cannot be shifted must not pass for one that can. */
    if (mapped == MAP_FAILED) abort();
    close(file);
    shift_ms = mapped;
}

/* The system call and not the library's function, which may end here again. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    long result = syscall(SYS_clock_gettime, clock, now);
    int is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (result == 0 && is_wall && shift_ms) {
        int64_t ns = (int64_t)now->tv_nsec + (*shift_ms % 1000) * 1000000;
        now->tv_sec += *shift_ms / 1000;
        if (ns < 0) { ns += 1000000000; now->tv_sec -= 1; }
        if (ns >= 1000000000) { ns -= 1000000000; now->tv_sec += 1; }
        now->tv_nsec = ns;
    }
    return (int)result;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec wall;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &wall) != 0) return -1;
    now->tv_sec = wall.tv_sec;
    now->tv_usec = wall.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds) {
    struct timespec wall;
    if (clock_gettime(CLOCK_REALTIME, &wall) != 0) return -1;
    if (seconds) *seconds = wall.tv_sec;
    return wall.tv_sec;
}
