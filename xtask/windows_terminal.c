/* A program on a terminal, for `cargo xtask windows --run`: says "ready", then answers each line with
   "got" and the line; "q" ends it with 9. It opens its console by name: under Wine the standard handles
   that a pseudo-console's program starts with lead nowhere. */
#include <stdio.h>
#include <windows.h>

static HANDLE console(const char *name)
{
    return CreateFileA(name, GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, NULL,
                       OPEN_EXISTING, 0, NULL);
}

int main(void)
{
    HANDLE in = console("CONIN$"), out = console("CONOUT$");
    char line[256], answer[300];
    DWORD length, written;
    WriteConsoleA(out, "ready\r\n", 7, &written, NULL);
    while (ReadConsoleA(in, line, sizeof line, &length, NULL) && length > 0) {
        int size = snprintf(answer, sizeof answer, "got %.*s", (int)length, line);
        WriteConsoleA(out, answer, (DWORD)size, &written, NULL);
        if (line[0] == 'q')
            return 9;
    }
    return 1;
}
