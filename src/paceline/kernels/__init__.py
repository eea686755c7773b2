"""C for CPUs as operations of torch, for what torch's CPU build does slowly: guests, never needed.

An operation (`torch.ops.paceline.*`) has its fake, its gradient and its number of arithmetic
operations registered, so compiling, autocast, fake tensors and FLOP counters see what it is. Models
ask `can_take` and otherwise do the same with torch's own operations. No model lives here.
"""
