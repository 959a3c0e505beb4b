target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

define void @scale(i32* %p, i32* %q, i32 %n) {
entry:
  %c = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %b = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %g = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
  %m = mul i32 %c, %b
  %first = add i32 %m, %t
  %step = mul i32 %g, %b
  br label %head
head:
  %i = phi i32 [ %first, %entry ], [ %next, %body ]
  %in = icmp ult i32 %i, %n
  br i1 %in, label %body, label %end
body:
  %w = zext i32 %i to i64
  %a = getelementptr i32, i32* %p, i64 %w
  %v = load i32, i32* %a
  %d = mul i32 %v, 3
  %z = getelementptr i32, i32* %q, i64 %w
  store i32 %d, i32* %z
  %next = add i32 %i, %step
  br label %head
end:
  ret void
}
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()

!nvvm.annotations = !{!0}
!0 = !{void (i32*, i32*, i32)* @scale, !"kernel", i32 1}
!nvvmir.version = !{!1}
!1 = !{i32 2, i32 0, i32 3, i32 2}
