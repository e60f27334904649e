/*
 * replay: run one fuzz target over every file of the folders given, without a fuzzer, so that what
 * was once found runs in the normal suite. Prints how many files ran; none at all is a failure.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>

#include "files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void run_file(const char *path)
{
    struct buf file;
    buf_init(&file, &mem_libc, FILE_BYTES_MAX);
    file_read_path(path, &file);
    (void)fprintf(stderr, "%s\n", path); /* so that a crash shows what did it */
    /* An exact copy, so that a byte read past the end is noticed. */
    uint8_t *copy = mem_alloc(&mem_libc, file.len == 0 ? 1 : file.len);
    ASSERT(copy != NULL);
    if (file.len > 0) {
        memcpy(copy, file.data, file.len);
    }
    (void)LLVMFuzzerTestOneInput(copy, file.len);
    mem_free(&mem_libc, copy);
    buf_release(&file);
}

static size_t run_folder(const char *folder)
{
    size_t count = 0;
    DIR *dir = opendir(folder);
    if (dir == NULL) {
        (void)fprintf(stderr, "cannot open %s\n", folder);
        return 0;
    }
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            char path[4096];
            (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            run_file(path);
            count++;
        }
    }
    (void)closedir(dir);
    return count;
}

int main(int argc, char **argv)
{
    size_t count = 0;
    for (int i = 1; i < argc; i++) {
        count += run_folder(argv[i]);
    }
    (void)printf("%zu files\n", count);
    return count > 0 ? 0 : 1;
}
