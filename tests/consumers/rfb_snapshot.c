/* A viewer over libvncclient: for each byte of its input it takes in what has come for a moment, then
 * writes the screen: width and height as ints, then R, G, B. Arguments: a port, an encoding, a password or "". */
#include <rfb/rfbclient.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *word;

static char *password(rfbClient *client) {
    (void)client;
    return strdup(word);
}

int main(int argc, char **argv) {
    char encodings[64], *arguments[] = {"snapshot", NULL, NULL};
    int count = 1, i;
    if (argc != 4) return 2;
    rfbEnableClientLogging = FALSE;
    word = argv[3];
    rfbClient *client = rfbGetClient(8, 3, 4);
    snprintf(encodings, sizeof encodings, "%s", argv[2]);
    client->serverHost = strdup("127.0.0.1");
    client->serverPort = atoi(argv[1]);
    client->appData.encodingsString = encodings;
    client->appData.enableJPEG = FALSE;
    client->appData.useRemoteCursor = FALSE;
    client->GetPassword = password;
    if (!rfbInitClient(client, &count, arguments)) return 3;
    SendKeyEvent(client, 'a', TRUE);
    SendKeyEvent(client, 'a', FALSE);
    while (getchar() != EOF) {
        while ((i = WaitForMessage(client, 100000)) > 0)
            if (!HandleRFBServerMessage(client)) return 4;
        if (i < 0) return 5;
        fwrite(&client->width, sizeof client->width, 1, stdout);
        fwrite(&client->height, sizeof client->height, 1, stdout);
        for (i = 0; i < client->width * client->height; i++) fwrite(client->frameBuffer + 4 * i, 1, 3, stdout);
        fflush(stdout);
    }
    free(client->frameBuffer);
    client->frameBuffer = NULL;
    rfbClientCleanup(client);
    return 0;
}
