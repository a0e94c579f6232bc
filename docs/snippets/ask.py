import numpy as np

import equibayes

posterior = equibayes.load("ethanol.posterior")
frame = equibayes.read("bundled:ethanol@test")[0]  # or ASE atoms
prediction = posterior.predict(frame)

print("atom  |error|      σ  of it epistemic   (meV/Å, RMS over x, y, z)")
parts = (prediction.forces - frame.forces, prediction.forces_std, prediction.forces_epistemic)
for atom, (error, sigma, epistemic) in enumerate(zip(*(1000 * np.sqrt(np.square(p).mean(1)) for p in parts))):
    print(f"{atom:4d}  {error:7.0f} {sigma:6.0f}  {epistemic:15.0f}")
