"""The frame of a lazy backward compile, in its two places."""
from ... import LAYOUT

if LAYOUT == "2.13":

    class _AutogradBackwardCompiler:
        def __init__(self, context):
            self.context = context

        def get_or_compile(self, hold, *, saved_tensors_use_once=True):
            bw_module = object()
            saved_context = object()
            saved_compile_context = self.context
            return hold(), bw_module, saved_context, saved_compile_context

    def run_backward(context, hold):
        _AutogradBackwardCompiler(context).get_or_compile(hold)

else:

    class AOTDispatchAutograd:
        @staticmethod
        def post_compile(context, hold):
            class CompiledFunction:
                @staticmethod
                def _backward_impl(ctx, all_args):
                    saved_context = object()
                    saved_compile_context = context
                    return hold(), saved_context, saved_compile_context

            return CompiledFunction._backward_impl

    def run_backward(context, hold):
        AOTDispatchAutograd.post_compile(context, hold)(None, [])
