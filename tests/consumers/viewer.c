/* A viewer in C: `viewer PATH ENCODING UPDATES FILE`.
 *
 * Connects to a VNC server's Unix socket, takes so many updates in one encoding, and writes the pixels
 * as a PPM file. Each update is asked for when a line comes on standard input; a dot on standard output
 * says that it is painted. Needs rlwire's headers and zlib.
 */
#include <rlwire/rfb.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zlib.h>

static void fail(const char *what) {
    fprintf(stderr, "viewer: %s\n", what);
    exit(1);
}

static int connection;

static void receive(uint8_t *to, size_t size) {
    while (size) {
        ssize_t got = read(connection, to, size);
        if (got <= 0) fail("the server has gone");
        to += got;
        size -= (size_t)got;
    }
}

static void say(const void *bytes, size_t size) {
    if (write(connection, bytes, size) != (ssize_t)size) fail("the server does not listen");
}

typedef struct streams {
    z_stream z[5];
    int open[5];
    uint8_t *out;
    size_t room;
} streams;

static rlw_status begin(streams *s, unsigned stream) {
    if (s->open[stream]) return inflateReset(&s->z[stream]) == Z_OK ? RLW_OK : RLW_BAD_ZLIB;
    s->open[stream] = 1;
    return inflateInit(&s->z[stream]) == Z_OK ? RLW_OK : RLW_NO_MEMORY;
}

static rlw_status inflate_all(void *context, unsigned stream, int reset, const uint8_t *data,
                              size_t size, uint64_t most, const uint8_t **out, size_t *made) {
    streams *s = (streams *)context;
    z_stream *z = &s->z[stream];
    int result;
    if (reset || !s->open[stream]) {
        rlw_status status = begin(s, stream);
        if (status != RLW_OK || reset) return status;
    }
    if (most + 1 > s->room) {
        free(s->out);
        s->room = (size_t)most + 1;
        s->out = (uint8_t *)malloc(s->room);
        if (!s->out) return RLW_NO_MEMORY;
    }
    z->next_in = (Bytef *)(uintptr_t)data;
    z->avail_in = (uInt)size;
    z->next_out = s->out;
    z->avail_out = (uInt)most + 1;
    result = inflate(z, Z_SYNC_FLUSH);
    if ((result != Z_OK && result != Z_BUF_ERROR) || z->avail_in) return RLW_BAD_ZLIB;
    *out = s->out;
    *made = (size_t)most + 1 - z->avail_out;
    return *made > most ? RLW_BAD_INFLATED : RLW_OK;
}

static rlw_status no_jpeg(void *context, const uint8_t *data, size_t size, uint32_t width,
                          uint32_t height, const uint8_t **out) {
    (void)context, (void)data, (void)size, (void)width, (void)height, (void)out;
    return RLW_BAD_JPEG; /* not asked for */
}

/* One rectangle: bytes are read until its size is known, then all of it. */
static void rectangle(const rlw_rfb_layouts *p, const rlw_rfb_screen *s, const rlw_rfb_helpers *h) {
    static uint8_t *bytes;
    static size_t room;
    rlw_rfb_progress progress = {0, 0};
    rlw_rfb_rectangle r;
    rlw_cursor c;
    size_t have = RLW_RFB_HEAD;
    uint64_t size;
    rlw_status status;
    if (!room && !(bytes = (uint8_t *)malloc(room = 1 << 16))) fail("no memory");
    receive(bytes, have);
    for (;;) {
        rlw_cursor_init(&c, bytes, have);
        status = rlw_rfb_measure(&c, p, s, &progress, &size);
        if (status != RLW_NEED_MORE) break;
        if (have == room && !(bytes = (uint8_t *)realloc(bytes, room *= 2))) fail("no memory");
        receive(bytes + have++, 1);
    }
    if (status == RLW_OK && size > 1 << 26) fail("a rectangle that is too long");
    if (status == RLW_OK) {
        if (size > room && !(bytes = (uint8_t *)realloc(bytes, room = (size_t)size)))
            fail("no memory");
        receive(bytes + have, (size_t)size - have);
        rlw_cursor_init(&c, bytes, (size_t)size);
        status = rlw_rfb_paint(&c, p, s, h, &r);
    }
    if (status != RLW_OK) fail(rlw_status_text(status));
}

int main(int argc, char **argv) {
    static const rlw_rfb_format rgbx = {32, 24, 0, {0, 8, 16}, {255, 255, 255}};
    static const uint8_t set_format[20] = {0, 0,   0, 0,   32, 24,  0, 1, 0,
                                           255, 0, 255, 0, 255, 0, 8, 16};
    uint8_t answer[256], encodings[12] = {2, 0, 0, 2}, ask[10] = {3};
    static streams kept;
    rlw_rfb_helpers helpers = {&kept, inflate_all, no_jpeg};
    struct sockaddr_un address;
    rlw_rfb_layouts layouts;
    rlw_rfb_screen screen;
    FILE *file;
    int i, updates, line;
    if (argc != 5) fail("PATH ENCODING UPDATES FILE");
    updates = atoi(argv[3]);
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", argv[1]);
    connection = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(connection, (struct sockaddr *)&address, sizeof address)) fail("no server");
    receive(answer, 12);
    say("RFB 003.008\n", 12);
    receive(answer, 1);
    receive(answer + 1, answer[0]);
    say("\1", 1); /* no password */
    receive(answer, 4);
    say("\1", 1); /* shared */
    receive(answer, 24);
    screen.width = rlw_load_u16be(answer);
    screen.height = rlw_load_u16be(answer + 2);
    screen.channels = 3;
    screen.stride = (size_t)screen.width * 3;
    memcpy(ask + 6, answer, 4);
    for (i = (int)rlw_load_u32be(answer + 20); i > 0; i--) receive(answer, 1); /* its name */
    screen.pixels = (uint8_t *)calloc(screen.height, screen.stride);
    if (!screen.pixels) fail("no memory");
    rlw_rfb_prepare(&layouts, &rgbx);
    say(set_format, sizeof set_format);
    rlw_store_u32be(encodings + 4, (uint32_t)atoi(argv[2]));
    rlw_store_u32be(encodings + 8, RLW_RFB_COPY_RECT);
    say(encodings, sizeof encodings);
    for (i = 0; i < updates; i++) {
        unsigned count;
        do line = getchar();
        while (line != '\n' && line != EOF);
        ask[1] = i > 0; /* incremental */
        say(ask, sizeof ask);
        receive(answer, 4);
        if (answer[0] != 0) fail("no update");
        for (count = rlw_load_u16be(answer + 2); count; count--)
            rectangle(&layouts, &screen, &helpers);
        putchar('.');
        fflush(stdout);
    }
    file = fopen(argv[4], "wb");
    if (!file) fail("no file");
    fprintf(file, "P6 %u %u 255\n", (unsigned)screen.width, (unsigned)screen.height);
    fwrite(screen.pixels, screen.stride, screen.height, file);
    return fclose(file) ? 1 : 0;
}
