/*
 * The kernels of the test programs, as PTX of the oldest version that has what they use.
 *
 *   fill(u32 *p, u32 n, u32 value)       p[i] = value + i
 *   add(u32 *p, u32 n, u32 value)        p[i] += value
 *   mix(u32 *p, u32 n, u32 rounds)       rounds steps of a generator on p[i]
 *   copy(u32 *to, u32 *from, u32 n)      to[i] = from[i]
 *   poke(u32 *p, u32 value)              *p = value, from every thread
 *   fail()                               trap
 *   reverse(u32 *p, u32 n)               in one block, through dynamic shared memory
 *   ids(u32 *p)                          which thread of which block wrote each element
 *   params(u64 *p, …)                    stores arguments of many sizes
 *   bump()                               counter += step; words[t] += t, t = 0 … 3
 */
#ifndef TEST_KERNELS_H
#define TEST_KERNELS_H

#define PTX_HEADER ".version 6.3\n.target sm_70\n.address_size 64\n"

/* An entry with index %r1 below the argument `n` in %r2, and registers to work with. */
#define PTX_BEGIN(name, params, n) \
	".visible .entry " name "(" params ")\n{\n" \
	".reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<8>;\n" \
	"mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;\n" \
	"mad.lo.u32 %r1, %r3, %r4, %r5;\n" \
	"ld.param.u32 %r2, [" n "];\n" \
	"setp.ge.u32 %p1, %r1, %r2;\n@%p1 bra DONE;\n"
/* %rd1 = global address of element %r1 of the array in the argument. */
#define PTX_ELEMENT(argument) \
	"ld.param.u64 %rd1, [" argument "];\ncvta.to.global.u64 %rd1, %rd1;\n" \
	"mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd1, %rd1, %rd2;\n"
#define PTX_END "DONE:\nret;\n}\n"

static const char KERNELS[] __attribute__((unused)) =
	PTX_HEADER
	".visible .global .align 4 .u32 counter = 7;\n"
	".visible .global .align 4 .u32 words[4] = {10, 20, 30, 40};\n"
	".visible .const .align 4 .u32 step = 3;\n"
	".visible .global .align 8 .b8 zeros[100];\n"
	".extern .shared .align 4 .b8 dynamic[];\n"

	PTX_BEGIN("fill", ".param .u64 p, .param .u32 n, .param .u32 value", "n")
	PTX_ELEMENT("p")
	"ld.param.u32 %r6, [value];\nadd.u32 %r6, %r6, %r1;\nst.global.u32 [%rd1], %r6;\n"
	PTX_END

	PTX_BEGIN("add", ".param .u64 p, .param .u32 n, .param .u32 value", "n")
	PTX_ELEMENT("p")
	"ld.param.u32 %r6, [value];\nld.global.u32 %r7, [%rd1];\n"
	"add.u32 %r7, %r7, %r6;\nst.global.u32 [%rd1], %r7;\n"
	PTX_END

	PTX_BEGIN("mix", ".param .u64 p, .param .u32 n, .param .u32 rounds", "n")
	PTX_ELEMENT("p")
	"ld.param.u32 %r6, [rounds];\nld.global.u32 %r7, [%rd1];\n"
	"LOOP:\nsetp.eq.u32 %p2, %r6, 0;\n@%p2 bra STORE;\n"
	"mad.lo.u32 %r7, %r7, 1664525, 1013904223;\nsub.u32 %r6, %r6, 1;\nbra LOOP;\n"
	"STORE:\nst.global.u32 [%rd1], %r7;\n"
	PTX_END

	PTX_BEGIN("copy", ".param .u64 to, .param .u64 from, .param .u32 n", "n")
	PTX_ELEMENT("from")
	"ld.global.u32 %r6, [%rd1];\n"
	PTX_ELEMENT("to")
	"st.global.u32 [%rd1], %r6;\n"
	PTX_END

	".visible .entry poke(.param .u64 p, .param .u32 value)\n{\n"
	".reg .b32 %r<2>; .reg .b64 %rd<2>;\n"
	"ld.param.u64 %rd1, [p];\nld.param.u32 %r1, [value];\n"
	"st.global.u32 [%rd1], %r1;\nret;\n}\n"

	".visible .entry fail()\n{\ntrap;\nret;\n}\n"

	PTX_BEGIN("reverse", ".param .u64 p, .param .u32 n", "n")
	PTX_ELEMENT("p")
	"ld.global.u32 %r6, [%rd1];\n"
	"mov.u32 %r7, dynamic;\nmad.lo.u32 %r8, %r1, 4, %r7;\nst.shared.u32 [%r8], %r6;\n"
	"bar.sync 0;\n"
	"sub.u32 %r9, %r2, %r1;\nsub.u32 %r9, %r9, 1;\nmad.lo.u32 %r8, %r9, 4, %r7;\n"
	"ld.shared.u32 %r6, [%r8];\nst.global.u32 [%rd1], %r6;\n"
	PTX_END

	".visible .entry ids(.param .u64 p)\n{\n"
	".reg .b32 %r<16>; .reg .b64 %rd<4>;\n"
	"mov.u32 %r1, %ctaid.z; mov.u32 %r2, %nctaid.y; mov.u32 %r3, %ctaid.y;\n"
	"mad.lo.u32 %r1, %r1, %r2, %r3;\n"
	"mov.u32 %r2, %nctaid.x; mov.u32 %r3, %ctaid.x;\nmad.lo.u32 %r1, %r1, %r2, %r3;\n"
	"mov.u32 %r4, %tid.z; mov.u32 %r5, %ntid.y; mov.u32 %r6, %tid.y;\n"
	"mad.lo.u32 %r4, %r4, %r5, %r6;\n"
	"mov.u32 %r5, %ntid.x; mov.u32 %r6, %tid.x;\nmad.lo.u32 %r4, %r4, %r5, %r6;\n"
	"mov.u32 %r7, %ntid.y; mul.lo.u32 %r5, %r5, %r7;\n"
	"mov.u32 %r7, %ntid.z; mul.lo.u32 %r5, %r5, %r7;\n"
	"mad.lo.u32 %r8, %r1, %r5, %r4;\n"
	"mad.lo.u32 %r9, %r1, 1000, %r4;\n"
	"ld.param.u64 %rd1, [p];\nmul.wide.u32 %rd2, %r8, 4;\nadd.s64 %rd1, %rd1, %rd2;\n"
	"st.global.u32 [%rd1], %r9;\nret;\n}\n"

	".visible .entry params(.param .u64 p, .param .u8 a, .param .u16 b, .param .u32 c, .param .u64 d,\n"
	"\t.param .f32 e, .param .f64 f, .param .align 4 .b8 g[12])\n{\n"
	".reg .b16 %h<3>; .reg .b32 %r<8>; .reg .b64 %rd<6>; .reg .f32 %f<2>; .reg .f64 %d<2>;\n"
	"ld.param.u64 %rd1, [p];\n"
	"ld.param.u8 %h1, [a];\ncvt.u32.u16 %r1, %h1;\nst.global.u32 [%rd1], %r1;\n"
	"ld.param.u16 %h2, [b];\ncvt.u32.u16 %r2, %h2;\nst.global.u32 [%rd1+4], %r2;\n"
	"ld.param.u32 %r3, [c];\nst.global.u32 [%rd1+8], %r3;\n"
	"ld.param.u64 %rd2, [d];\nst.global.u64 [%rd1+16], %rd2;\n"
	"ld.param.f32 %f1, [e];\nst.global.f32 [%rd1+24], %f1;\n"
	"ld.param.f64 %d1, [f];\nst.global.f64 [%rd1+32], %d1;\n"
	"ld.param.u32 %r4, [g];\nst.global.u32 [%rd1+40], %r4;\n"
	"ld.param.u32 %r5, [g+8];\nst.global.u32 [%rd1+44], %r5;\n"
	"ret;\n}\n"

	".visible .entry bump()\n{\n"
	".reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<4>;\n"
	"mov.u32 %r1, %tid.x;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra TABLE;\n"
	"ld.const.u32 %r2, [step];\nld.global.u32 %r3, [counter];\n"
	"add.u32 %r3, %r3, %r2;\nst.global.u32 [counter], %r3;\n"
	"TABLE:\nsetp.gt.u32 %p1, %r1, 3;\n@%p1 bra DONE;\n"
	"mov.u64 %rd1, words;\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd1, %rd1, %rd2;\n"
	"ld.global.u32 %r4, [%rd1];\nadd.u32 %r4, %r4, %r1;\nst.global.u32 [%rd1], %r4;\n"
	PTX_END;

#endif
