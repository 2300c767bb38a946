/* Preloaded into a server under test: a disk that forgets, dawdles, fails or fills up.
 *
 * What was made durable is written, line by line, to the file DISK_LOG, after it happened and before the server can tell
 * anybody: "F <size> <path>" a file up to that size, "D <path>" the names in a directory, "R <old> <new> <kept>" a
 * rename, which is durable only with its directory; the file that it replaced stays under the name <kept>.
 * DISK_CONTROL is a shared file of three int64: microseconds that an fsync takes longer, the errno that it fails with
 * (0: none), bytes that may still be written to append-only files (-1: any number). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct control { volatile int64_t delay, failure; _Atomic int64_t room; };
static struct control none = {0, 0, -1};
static struct control *control = &none;
static int log_file = -1;
static _Atomic unsigned renames;
static int (*real_fsync)(int), (*real_fdatasync)(int), (*real_rename)(const char *, const char *);
static ssize_t (*real_write)(int, const void *, size_t);

__attribute__((constructor)) static void attach(void) {
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_rename = dlsym(RTLD_NEXT, "rename");
    real_write = dlsym(RTLD_NEXT, "write");
    const char *log = getenv("DISK_LOG"), *knobs = getenv("DISK_CONTROL");
    if (log) log_file = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    int file = knobs ? open(knobs, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *map = mmap(NULL, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) control = map;
    close(file);
}

static void note(const char *line, int length) {
    if (log_file >= 0 && real_write(log_file, line, length) != length) abort();
}

static int path_of(int file, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return 1;
}

static int synced(int file, int (*sync)(int)) {
    char path[PATH_MAX], line[PATH_MAX + 64];
    struct stat before;
    int known = fstat(file, &before) == 0 && path_of(file, path);
    if (control->delay) usleep((useconds_t)control->delay);
    if (control->failure) {
        errno = (int)control->failure;
        return -1;
    }
    int failed = sync(file);
    if (!failed && known) {
        int length = S_ISDIR(before.st_mode) ? snprintf(line, sizeof line, "D %s\n", path)
                                             : snprintf(line, sizeof line, "F %lld %s\n", (long long)before.st_size, path);
        note(line, length);
    }
    return failed;
}

int fsync(int file) { return synced(file, real_fsync); }
int fdatasync(int file) { return synced(file, real_fdatasync); }

int rename(const char *from, const char *to) {
    char line[3 * PATH_MAX + 16], kept[PATH_MAX], whole_from[PATH_MAX], whole_to[PATH_MAX], folder[PATH_MAX];
    if (!getcwd(folder, sizeof folder)) return -1;
    snprintf(whole_from, sizeof whole_from, "%s%s%s", from[0] == '/' ? "" : folder, from[0] == '/' ? "" : "/", from);
    snprintf(whole_to, sizeof whole_to, "%s%s%s", to[0] == '/' ? "" : folder, to[0] == '/' ? "" : "/", to);
    snprintf(kept, sizeof kept, "%s.was-%d-%u", whole_to, (int)getpid(), atomic_fetch_add(&renames, 1));
    if (link(whole_to, kept)) strcpy(kept, "-");
    int failed = real_rename(from, to);
    if (!failed) note(line, snprintf(line, sizeof line, "R %s %s %s\n", whole_from, whole_to, kept));
    return failed;
}

ssize_t write(int file, const void *data, size_t size) {
    char path[PATH_MAX];
    if (atomic_load(&control->room) < 0 || !path_of(file, path) || !strstr(path, "/appendonlydir/"))
        return real_write(file, data, size);
    int64_t left = atomic_load(&control->room);
    if (left <= 0) {
        errno = ENOSPC;
        return -1;
    }
    if ((int64_t)size > left) size = (size_t)left;
    ssize_t written = real_write(file, data, size);
    if (written > 0) atomic_fetch_sub(&control->room, written);
    return written;
}
