/* A stand-in for libnvidia-ml.so.1: a container sees the devices that its runtime wrote to /run/fake-gpus. */
#include <stdio.h>
#include <string.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, DRIVER_NOT_LOADED = 9, MOST = 16, LENGTH = 96 };

static char uuids[MOST][LENGTH];
static unsigned count, ready;

int nvmlInit_v2(void) {
  FILE *file = fopen("/run/fake-gpus", "r");
  if (!file) return DRIVER_NOT_LOADED;
  for (count = 0; count < MOST && fgets(uuids[count], LENGTH, file); count++) uuids[count][strcspn(uuids[count], "\n")] = 0;
  fclose(file);
  ready = 1;
  return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { ready = 0; return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *found) {
  *found = count;
  return ready ? SUCCESS : UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  if (!ready) return UNINITIALIZED;
  if (index >= count) return INVALID_ARGUMENT;
  *handle = uuids[index];
  return SUCCESS;
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned length) {
  strncpy(text, handle, length);
  return SUCCESS;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned length) {
  (void)handle;
  strncpy(text, "Fake GPU", length);
  return SUCCESS;
}

const char *nvmlErrorString(int error) { return error == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "error"; }
