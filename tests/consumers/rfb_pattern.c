/* A server of libvncserver's whose picture moves. For each byte on its standard input it paints the
 * next frame, or for 'c' copies the upper left quarter to the lower right one, and answers with a
 * byte; the first that it says is its port and a newline.
 *
 * rfb_pattern BYTES_PER_PIXEL (1, 2, 3 or 4)
 */
#include <fcntl.h>
#include <rfb/rfb.h>
#include <unistd.h>

enum { WIDTH = 160, HEIGHT = 120 };

static void paint(rfbScreenInfoPtr screen, int number, int size) {
    int x, y, i;
    for (y = 0; y < HEIGHT; y++)
        for (x = 0; x < WIDTH; x++)
            for (i = 0; i < size; i++)
                screen->frameBuffer[(y * WIDTH + x) * size + i] =
                    (char)(x / 8 * 37 + y / 5 * (11 + i) + number * 53 + i * x);
    rfbMarkRectAsModified(screen, 0, 0, WIDTH, HEIGHT);
}

int main(int argc, char **argv) {
    int size = atoi(argv[argc - 1]), number = 0, none = 0;
    rfbScreenInfoPtr screen = rfbGetScreen(&none, NULL, WIDTH, HEIGHT, 8, 3, size);
    if (!screen) return 1;
    screen->listenInterface = htonl(INADDR_LOOPBACK);
    screen->autoPort = TRUE;
    screen->ipv6port = -1;
    screen->alwaysShared = TRUE;
    rfbSetCursor(screen, rfbMakeXCursor(1, 1, " ", " ")); /* is not seen */
    screen->frameBuffer = calloc(WIDTH * HEIGHT, (size_t)size);
    paint(screen, number++, size);
    rfbLogEnable(0);
    rfbInitServer(screen);
    printf("%d\n", screen->port);
    fflush(stdout);
    fcntl(0, F_SETFL, O_NONBLOCK);
    for (;;) {
        char what;
        ssize_t have = read(0, &what, 1);
        if (have == 0) return 0;
        if (have == 1) {
            if (what == 'c')
                rfbDoCopyRect(screen, WIDTH / 2, HEIGHT / 2, WIDTH, HEIGHT, WIDTH / 2, HEIGHT / 2);
            else
                paint(screen, number++, size);
            if (write(1, ".", 1) != 1) return 1;
        }
        rfbProcessEvents(screen, 1000);
    }
}
