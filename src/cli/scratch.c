#include "cli/scratch.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

int scratch_make(const char *parent, const char *name, char *ret_path, size_t size)
{
    const char *tmp = getenv("TMPDIR");
    const char *where = parent != NULL ? parent : tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp";
    int used = snprintf(ret_path, size, "%s/%s-XXXXXX", where, name);
    if (used < 0 || (size_t)used >= size || mkdtemp(ret_path) == NULL) {
        cli_say("cannot make a directory in '%s': %s", where, strerror(errno));
        return CLI_UNAVAILABLE;
    }
    return CLI_OK;
}

static int remove_one(const char *path, const struct stat *facts, int type, struct FTW *place)
{
    (void)facts;
    (void)type;
    (void)place;
    (void)remove(path); /* files that stay do no harm */
    return 0;
}

void scratch_remove(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}
