/* LD_PRELOAD: counts fdatasync and fsync calls of one process in the 8 bytes of the file FSYNC_COUNT names, and makes
   each take FSYNC_EXTRA_US microseconds longer, as on a slower disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t *count;
static useconds_t extra;

__attribute__((constructor)) static void open_counter(void) {
    const char *longer = getenv("FSYNC_EXTRA_US");
    extra = longer ? (useconds_t)strtoul(longer, NULL, 10) : 0;
    const char *path = getenv("FSYNC_COUNT");
    int file = path ? open(path, O_RDWR) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) count = page;
}

static int counted(const char *name, int file) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    if (count) __atomic_add_fetch(count, 1, __ATOMIC_RELAXED);
    int result = real(file);
    if (extra) usleep(extra);
    return result;
}

int fdatasync(int file) { return counted("fdatasync", file); }
int fsync(int file) { return counted("fsync", file); }
