/* Both ends of shared memory without Python: a client that sends frames and checks what comes back,
 * and a server that sends back what comes. A frame is 4 bytes of its whole size, big-endian, 16 of
 * nothing, and a body.
 *
 *     cc -std=c11 -I"$(python -c 'import rlwire; print(rlwire.get_include())')" shm_echo.c -o shm_echo
 *     ./shm_echo client /path/of/socket
 *     ./shm_echo server /path/of/socket
 */
#include <rlwire/shm.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>

#define HEAD 20

static void must(int64_t got, const char *what) {
    if (got >= 0) return;
    fprintf(stderr, "%s: %s\n", what, strerror((int)-got));
    exit(1);
}

static struct sockaddr_un place(const char *path) {
    struct sockaddr_un where;
    memset(&where, 0, sizeof where);
    where.sun_family = AF_UNIX;
    if (strlen(path) >= sizeof where.sun_path) must(-ENAMETOOLONG, path);
    memcpy(where.sun_path, path, strlen(path));
    return where;
}

static size_t size_of(const uint8_t *head) {
    return (size_t)head[0] << 24 | (size_t)head[1] << 16 | (size_t)head[2] << 8 | head[3];
}

static void client(const char *path) {
    static const size_t sizes[] = {0, 1, 100, 4076, 5000, 100000, 3 << 20, 7};
    struct sockaddr_un where = place(path);
    int file = socket(AF_UNIX, SOCK_STREAM, 0);
    size_t i, k, size;
    rlw_shm shm;
    must(connect(file, (struct sockaddr *)&where, sizeof where) ? -errno : 0, path);
    must(rlw_shm_connect(&shm, file, 8192), "cannot share memory");
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t *data, *back;
        struct iovec parts[2];
        size = sizes[i] + HEAD;
        data = calloc(1, size);
        back = calloc(1, size);
        if (!data || !back) must(-ENOMEM, "memory");
        data[0] = (uint8_t)(size >> 24), data[1] = (uint8_t)(size >> 16);
        data[2] = (uint8_t)(size >> 8), data[3] = (uint8_t)size;
        for (k = HEAD; k < size; k++) data[k] = (uint8_t)(k * 7 + i);
        parts[0].iov_base = data, parts[0].iov_len = HEAD;
        parts[1].iov_base = data + HEAD, parts[1].iov_len = size - HEAD;
        must(rlw_shm_sendv(&shm, parts, 2, 20), "send");
        if (rlw_shm_recv(&shm, back, size, 1, 20e-6, 20) != (int64_t)size || memcmp(data, back, size))
            must(-EBADMSG, "what came back");
        free(data);
        free(back);
    }
    rlw_shm_end(&shm);
    if (rlw_shm_recv(&shm, &size, 1, 0, 0, 20) != 0) must(-EBADMSG, "the end");
    rlw_shm_close(&shm);
    close(file);
    printf("%zu frames came back\n", i);
}

static void server(const char *path) {
    struct sockaddr_un where = place(path);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), file;
    int64_t got;
    uint8_t head[HEAD];
    rlw_shm shm;
    must(bind(listener, (struct sockaddr *)&where, sizeof where) ? -errno : 0, path);
    must(listen(listener, 1) ? -errno : 0, "listen");
    puts("listening");
    fflush(stdout);
    file = accept(listener, NULL, NULL);
    must(file < 0 ? -errno : 0, "accept");
    must(rlw_shm_accept(&shm, file, 4096), "cannot share memory");
    while ((got = rlw_shm_recv(&shm, head, HEAD, 1, 0, 20)) == HEAD) {
        size_t size = size_of(head);
        uint8_t *frame = malloc(size);
        if (!frame) must(-ENOMEM, "memory");
        memcpy(frame, head, HEAD);
        /* Whole, before it goes back: the other may send all of it before it reads. */
        if (size > HEAD) must(rlw_shm_recv(&shm, frame + HEAD, size - HEAD, 1, 0, 20), "receive");
        must(rlw_shm_send(&shm, frame, size, 20), "send");
        free(frame);
    }
    printf("%s\n", got == 0 ? "it left" : strerror((int)-got));
    rlw_shm_close(&shm);
    close(file);
    close(listener);
}

int main(int count, char **words) {
    if (count != 3) return 2;
    if (!strcmp(words[1], "client"))
        client(words[2]);
    else
        server(words[2]);
    return 0;
}
