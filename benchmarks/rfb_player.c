/* libvncclient with what a server said, as a shared library for test_rfb.py.
 *
 * The data has the messages behind ServerInit, each after a struct timeval (the library's own form of
 * recordings), with pixels of 32 bits as the library asks for them.
 */
#include <rfb/rfbclient.h>
#include <stdlib.h>
#include <string.h>

static void quiet(const char *format, ...) { (void)format; }

/* Plays the updates; returns 0, and the pixels as RGBA of 4 bytes each. */
int play(char *data, size_t size, int width, int height, int updates, unsigned char *pixels) {
    static unsigned char screen[1024 * 768 * 4]; /* both sides paint over what is there */
    rfbClient *client;
    int i, result = 0;
    if ((size_t)width * (size_t)height * 4 > sizeof screen) return 3;
    rfbClientLog = quiet;
    client = rfbGetClient(8, 3, 4);
    client->width = width;
    client->height = height;
    client->serverPort = -1; /* plays a recording */
    client->vncRec = calloc(1, sizeof *client->vncRec);
    if (!client->vncRec) return 2;
    client->vncRec->file = fmemopen(data, size, "rb");
    client->vncRec->doNotSleep = TRUE;
    client->frameBuffer = screen;
    for (i = 0; i < updates; i++)
        if (!HandleRFBServerMessage(client)) result = 1;
    if (pixels) memcpy(pixels, client->frameBuffer, (size_t)width * (size_t)height * 4);
    fclose(client->vncRec->file);
    client->frameBuffer = NULL;
    rfbClientCleanup(client);
    return result;
}
