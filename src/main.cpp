#include "cli/options.h"

int main(int argc, char** argv) { return qgen::cli::run(argc, argv); }
