/* libudev, which libveda links, where the system has none; its functions are in system.c. */
int nothing_of_udev;
