/* libvncserver's encoders, for bench_rfb_encode.py: frames from a file, one command a line.
 *
 * The file: uint32 frames, width, height; for each frame uint32 areas, four uint32 for each of them,
 * and its pixels, R, G, B. A command is "ENCODING LEVEL": every frame's areas are written, in one
 * update each, to a client whose socket is /dev/null. The answer is "NANOSECONDS BYTES", of the time
 * that this thread spent in it.
 */
#include <fcntl.h>
#include <rfb/rfb.h>
#include <rfb/rfbregion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    uint32_t count, *areas;
    uint32_t *pixels;
} Frame;

static void get(void *to, size_t size, FILE *file) {
    if (fread(to, 1, size, file) != size) {
        fprintf(stderr, "the file of frames ends early\n");
        exit(1);
    }
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int main(int argc, char **argv) {
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    uint32_t head[3], i, j;
    size_t area;
    int ends[2], encoding, level;
    if (!file) return 1;
    get(head, sizeof head, file);
    area = (size_t)head[1] * head[2];
    Frame *frames = calloc(head[0], sizeof *frames);
    uint8_t *rgb = malloc(3 * area);
    for (i = 0; i < head[0]; i++) {
        get(&frames[i].count, 4, file);
        frames[i].areas = malloc(16 * frames[i].count + 1);
        get(frames[i].areas, 16 * frames[i].count, file);
        get(rgb, 3 * area, file);
        frames[i].pixels = malloc(4 * area);
        for (size_t k = 0; k < area; k++)
            frames[i].pixels[k] =
                (uint32_t)rgb[3 * k] << 16 | (uint32_t)rgb[3 * k + 1] << 8 | rgb[3 * k + 2];
    }
    fclose(file);

    rfbLogEnable(0);
    rfbScreenInfoPtr screen = rfbGetScreen(NULL, NULL, (int)head[1], (int)head[2], 8, 3, 4);
    screen->frameBuffer = malloc(4 * area);
    screen->serverFormat.redShift = 16; /* as TigerVNC's viewer has it */
    screen->serverFormat.blueShift = 0;
    screen->port = screen->ipv6port = 0;
    screen->autoPort = FALSE;
    screen->cursor = NULL;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 1;
    rfbClientPtr client = rfbNewClient(screen, ends[0]);
    int null = open("/dev/null", O_RDWR);
    if (!client || null < 0) return 1;
    dup2(null, client->sock); /* what is written goes nowhere */
    client->state = RFB_NORMAL;
    client->format = screen->serverFormat;
    rfbSetTranslateFunction(client);
    client->useNewFBSize = FALSE;
    client->enableLastRectEncoding = TRUE;
    client->turboQualityLevel = -1; /* exact pixels */

    while (scanf("%d %d", &encoding, &level) == 2) {
        uint64_t took = 0, bytes = 0;
        client->preferredEncoding = encoding;
        client->tightEncoding = encoding;
        client->tightCompressLevel = client->zlibCompressLevel = level;
        for (i = 0; i < head[0]; i++) {
            sraRegionPtr region = sraRgnCreate();
            memcpy(screen->frameBuffer, frames[i].pixels, 4 * area);
            for (j = 0; j < frames[i].count; j++) {
                uint32_t *a = frames[i].areas + 4 * j;
                sraRegionPtr one = sraRgnCreateRect((int)a[0], (int)a[1], (int)(a[0] + a[2]),
                                                    (int)(a[1] + a[3]));
                sraRgnOr(region, one);
                sraRgnDestroy(one);
            }
            sraRegionPtr all = sraRgnCreateRect(0, 0, (int)head[1], (int)head[2]);
            sraRgnOr(client->requestedRegion, all);
            sraRgnDestroy(all);
            int before = rfbStatGetSentBytes(client);
            uint64_t since = now();
            if (!rfbSendFramebufferUpdate(client, region)) return 1;
            took += now() - since;
            bytes += (uint64_t)(rfbStatGetSentBytes(client) - before);
            sraRgnDestroy(region);
        }
        printf("%llu %llu\n", (unsigned long long)took, (unsigned long long)bytes);
        fflush(stdout);
    }
    return 0;
}
