/* Defines the function itself in assembly, with a body that returns at once.
 *
 * check: WrongResult
 * measure: WrongResult
 */
__asm__(".text\n.globl dgemm\n.type dgemm, @function\ndgemm: ret\n");
