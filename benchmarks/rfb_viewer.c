/* libvncclient with what a server said: `rfb_viewer STREAM WIDTH HEIGHT UPDATES PASSES`.
 *
 * STREAM has the messages behind ServerInit, each after a struct timeval (the library's own form of
 * recordings), with pixels of 32 bits as the library asks for them. Prints the microseconds of CPU time
 * of an update, of each pass, and the CRC of the pixels at its end.
 */
#include <rfb/rfbclient.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zlib.h>

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void quiet(const char *format, ...) { (void)format; }

int main(int argc, char **argv) {
    int width, height, updates, passes, pass, i;
    FILE *file;
    char *data;
    long size;
    if (argc != 6 || !(file = fopen(argv[1], "rb"))) return 2;
    width = atoi(argv[2]);
    height = atoi(argv[3]);
    updates = atoi(argv[4]);
    passes = atoi(argv[5]);
    fseek(file, 0, SEEK_END);
    size = ftell(file);
    rewind(file);
    data = malloc((size_t)size);
    if (!data || fread(data, 1, (size_t)size, file) != (size_t)size) return 2;
    fclose(file);
    rfbClientLog = quiet;
    for (pass = 0; pass < passes; pass++) {
        rfbClient *client = rfbGetClient(8, 3, 4);
        double began;
        client->width = width;
        client->height = height;
        client->serverPort = -1; /* plays a recording */
        client->vncRec = calloc(1, sizeof *client->vncRec);
        if (!client->vncRec) return 2;
        client->vncRec->file = fmemopen(data, (size_t)size, "rb");
        client->vncRec->doNotSleep = TRUE;
        if (!client->MallocFrameBuffer(client)) return 2;
        memset(client->frameBuffer, 0, (size_t)width * (size_t)height * 4);
        began = seconds();
        for (i = 0; i < updates; i++)
            if (!HandleRFBServerMessage(client)) {
                fprintf(stderr, "update %d is refused\n", i);
                return 1;
            }
        printf("%.3f", 1e6 * (seconds() - began) / updates);
        for (i = 0; i < width * height; i++)
            memmove(client->frameBuffer + 3 * i, client->frameBuffer + 4 * i, 3);
        printf(" %lu\n", crc32(0, client->frameBuffer, 3 * (unsigned)(width * height)));
        fclose(client->vncRec->file);
        free(client->frameBuffer);
        rfbClientCleanup(client);
    }
    return 0;
}
