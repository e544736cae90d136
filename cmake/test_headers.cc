// Exists for its precompiled headers (HearthTests.cmake).
int main() {}
