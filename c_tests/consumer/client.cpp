/* The client as a C++ program. */

#include "client.h"

int main() {
    return client("from C++") == 0 ? 0 : 1;
}
