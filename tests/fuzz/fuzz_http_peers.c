/*
 * fuzz_http_peers: whatever our reader takes, http-parser and llhttp take with the same reading.
 *
 * Built when both are here (meson.build).
 */
#include "fuzz_http.h"
#include "http_peers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < FUZZ_PREFIX_BYTES) {
        return 0;
    }
    struct drive drive;
    struct drive_input input = fuzz_input(data, size);
    drive_init(&drive);
    do {
        drive_run(&drive, &input);
        if (drive.verdict == HTTP_DONE) {
            http_peers_check(&drive, &input);
        }
        input.bytes = fuzz_rest(&input, &drive);
    } while (drive.verdict == HTTP_DONE && input.bytes.len > 0);
    drive_release(&drive);
    return 0;
}
