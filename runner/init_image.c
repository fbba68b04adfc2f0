/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of the program that init.c makes; INIT_IMAGE is its path (Makefile). */
#include "runner/init_image.h"

#ifdef __clang_analyzer__ /* reads it without the Makefile */
#define INIT_IMAGE "/dev/null"
#endif

__asm__(".section .rodata\n"
	".globl init_image\n"
	".hidden init_image\n"
	".globl init_image_end\n"
	".hidden init_image_end\n"
	"init_image:\n"
	".incbin \"" INIT_IMAGE "\"\n"
	"init_image_end:\n"
	".previous\n");
