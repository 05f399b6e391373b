"""DiSCO: inexact damped Newton steps, solved by distributed preconditioned conjugate gradients."""
